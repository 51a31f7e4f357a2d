"""A parallel draft made of another model's folder: its config.json has a mask token, and the rest
is the other's. What it guesses from masks is as good as random, for tests that must hold whatever
the draft is."""
import json
import os


def write_parallel_draft(folder, like, mask_token):
    """Fills a new folder; `like` is a Hugging Face folder."""
    os.makedirs(folder)
    for name in os.listdir(like):
        if name != "config.json":
            os.symlink(os.path.join(like, name), os.path.join(folder, name))
    with open(os.path.join(like, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**config, "pard_token": mask_token}, file)
    return folder
