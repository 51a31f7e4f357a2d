"""Checks of tests/cluster/test_matrix.py: guesses that are looked up, and trees of guesses."""
import json
import re
import tempfile
import urllib.request

from generations import DRAFT, Edits, golden_prompts, order
from matrix import ALL, FAR_S, FARTHER_S, GREEDY_AND_COUPLED, N_SEEDS, PLANNED, Total
from plain_texts import KINDS, PAIR

# Times that three texts are made until guesses after siblings have stayed, in all and by each
# coordinator.
PATIENCE, TURNS = 12, 3
# The "sibling" of guesses of a second chain, and the least one of guesses after siblings.
BRANCH, GROWN = 4, 5
TWICE = ("greedy, twice", "coupled, twice")
# Texts with edits: how they are drawn, the prompts of the pair, and how many tokens a text with
# min_tokens has before it may end.
EDITED = {"greedy": {"temperature": 0}, "coupled": {"temperature": 1, "rule": "coupled"}}
PAIR_PROMPTS = [[id] for id in range(338, 344)]
N_FIRST = 30
LOOKUP_WAYS = {"planned": PLANNED, "K = 5": {"n_draft": 5},
               "heuristic": {"strategy": "heuristic", "n_draft": 16},
               "threshold": {"strategy": "threshold", "n_draft": 8}}


def check_lookup(world, lookup, in_flights, draft="none", ways=LOOKUP_WAYS, n_seeds=N_SEEDS):
    """Finders guess for all strategies where there is no draft, and otherwise for planned texts
    alone. Returns how often a text lost its place."""
    world.use("--lookup", lookup, draft=draft)
    n_preempted = 0
    for in_flight in in_flights:
        n_found = 0
        for name in TWICE:
            for way, fields in ways.items():
                def is_right(total):
                    if draft == "none":
                        return 0 < total.found == total.drafted and total.found_accepted <= \
                            total.found
                    return total.found_accepted <= total.found and (way == "planned" or
                                                                    total.found == 0)
                total = world.texts(name, is_right, in_flight=in_flight, n_seeds=n_seeds,
                                    **fields)
                n_found, n_preempted = n_found + total.found, n_preempted + total.preemptions
        # In company a draft may be worth more in every round, on some machines.
        world.check(n_found > 0 or draft != "none" and in_flight > 1,
                    f"{in_flight} at once: {n_found} guesses are found")
    return n_preempted


def check_store(world):
    """A store alone knows nothing of the first texts, and all of the same ones when they come
    again."""
    world.use("--lookup", "store", draft="none")
    for name in TWICE:
        first = world.texts(name, in_flight=1, **PLANNED)
        world.texts(name, lambda total: total.found_accepted > total.found / 2 and
                    total.rounds < first.rounds / 2, in_flight=1, **PLANNED)


def drafter_tokens(world, name, drafter):
    page = urllib.request.urlopen(f"{world.cluster.url}/metrics", timeout=30).read().decode()
    return int(re.search(rf'^outrider_{name}{{.*drafter="{drafter}".*}} (\d+)', page, re.M)[1])


def check_alone(world, lookup, one_in):
    """A finder that learns from what the target says, alone: it guesses for planned texts only, and
    of the guesses for lone texts more than one in `one_in` stays: of all together, because the
    planner, who measures times, may make few for one of them."""
    world.use("--lookup", lookup, draft="none")
    counted = [0, 0]
    for in_flight in (1, 16):
        for name in TWICE:
            total = world.texts(name, lambda total: total.found_accepted <= total.found ==
                                total.drafted, in_flight=in_flight, **PLANNED)
            counted[0] += total.found
            counted[1] += total.found_accepted
        if in_flight == 1:
            world.check(counted[1] > counted[0] / one_in > 0,
                        f"{counted[1]} of {counted[0]} guesses for lone texts stay")
    world.texts("greedy, twice", lambda total: total.found == 0, n_draft=5)
    metrics = [drafter_tokens(world, name, lookup)
               for name in ("drafter_tokens_total", "drafter_accepted_tokens_total")]
    world.check(metrics == counted, f"the metrics count {metrics}")


def check_appended(world, mode, in_flights):
    """Guesses that are looked up after those of the draft model, under every rule."""
    world.use("--lookup-append", mode)
    drawn = [(rule, [order(ids, seed=seed, temperature=0.8, rule=rule, max_tokens=100,
                           ignore_eos=1, **PLANNED)
                     for seed in (41, 42)[:N_SEEDS] for ids in KINDS["greedy"].prompts])
             for rule in ("rejection", "block")]

    def is_right(total):
        return total.appended_accepted <= total.appended <= total.found and \
            (mode != "off" or total.appended == 0)

    n_appended = 0
    for in_flight in in_flights:
        totals = [world.texts(name, is_right, in_flight=in_flight, max_tokens=100, **PLANNED)
                  for name in GREEDY_AND_COUPLED]
        for rule, orders in drawn:
            totals.append(Total(world.cluster.generate(orders, in_flight=in_flight)))
            world.check(is_right(totals[-1]), f"{rule}, {in_flight} at once: {totals[-1]}")
        n_appended += sum(total.appended for total in totals)
    world.check(n_appended > 0 or mode != "on", f"{n_appended} guesses after those of the draft")
    for name in GREEDY_AND_COUPLED:
        world.texts(name, lambda total: total.appended == 0, n_seeds=1, max_tokens=50, n_draft=3)


# ---- trees ----

def check_planned_trees(world, in_flights, n_seeds=N_SEEDS):
    """Returns how often a text lost its place."""
    world.use()
    n_preempted = 0
    for in_flight in in_flights:
        n_siblings = 0
        for name in GREEDY_AND_COUPLED:
            total = world.texts(
                name, lambda total: 0 < total.siblings_accepted < total.siblings or
                in_flight > 1 and total.siblings_accepted <= total.siblings,
                in_flight=in_flight, n_seeds=n_seeds, max_tokens=100, **PLANNED)
            n_siblings, n_preempted = n_siblings + total.siblings, n_preempted + total.preemptions
        # Many lanes need their rows for other things on slow machines.
        world.check(n_siblings > 0 or in_flight > 2, f"{n_siblings} siblings")
    return n_preempted


def check_tree_of_q(world, in_flight, n_seeds=N_SEEDS):
    """Trees that follow q for texts in each other's way. Returns how often one lost its place."""
    world.use("--trees", "dynamic:3,2,1")
    return sum(world.texts(name, lambda total: 0 < total.siblings_accepted < total.siblings,
                           in_flight=in_flight, n_seeds=n_seeds, max_tokens=100,
                           n_draft=3).preemptions
               for name in GREEDY_AND_COUPLED)


def check_store_trees(world):
    """Siblings are what other texts said for a place. There is no draft model, so all guesses and
    siblings are found, after texts of other seeds and of the other kind, which say something else.
    At the end the store knows each text itself, too. With --trees off there are no siblings. How
    many there are in one of the texts depends on the machine's times."""
    for trees in ("auto", "off"):
        world.use("--lookup", "store", "--trees", trees, draft="none")
        totals = [world.texts(name, lambda total: 0 < total.found == total.drafted,
                              in_flight=1, n_seeds=2, max_tokens=100, **PLANNED)
                  for name in ("coupled at 1", "greedy", "coupled at 1")]
        n_siblings = sum(total.siblings for total in totals)
        n_accepted = sum(total.siblings_accepted for total in totals)
        world.check(0 < n_accepted < n_siblings if trees == "auto" else n_siblings == 0,
                    f"{n_accepted} of {n_siblings} siblings stay")


def check_edited(world, prompts, fewest=0, n_tokens=100, **way):
    """Texts with penalties, biases and bans, which depend on a guess's path, are those of plain
    decoding with them. At least so many of their guesses beside the chain stay. Returns how many
    there were."""
    n_siblings = 0
    for name, rule in EDITED.items():
        fields = {"max_tokens": n_tokens, "ignore_eos": 1, "seed": 31, **rule}
        [bare] = world.cluster.generate([order(prompts[0], n_draft=0, **fields)])
        ids = bare["ids"]
        edits = Edits(repetition=1.2, presence=0.3, frequency=0.3, bias=-1.0, biased=ids[:2],
                      bans=[ids[3 * i:3 * i + 1 + i % 3] for i in range(2, 8)])
        plain, made = (Total(world.cluster.generate(
            [order(prompt, edits=edits, **fields, **one) for prompt in prompts],
            in_flight=in_flight)) for one, in_flight in (({"n_draft": 0}, 8), (way, 2)))
        n_other = sum(one["ids"] != other["ids"] for one, other in zip(made.done, plain.done))
        n_siblings += made.siblings
        world.check(fewest <= made.siblings_accepted <= made.siblings - fewest and n_other == 0 and
                    plain.done[0]["ids"] != ids, f"edited, {name}, {way}: {made}" +
                    (f"; {n_other} of {len(made.done)} texts differ" if n_other else ""))
    return n_siblings


def check_least(world, k):
    """A text that may not end yet goes on past the tokens that would end it, in trees, too: which
    ends are banned depends on how deep a guess is."""
    def ids_of(*words):
        done = world.cluster.outrider("generate", "Once upon a time", "-n", "100", "--ignore-eos",
                                      "--temperature", "0", "--json", *words)
        return json.loads(done.stdout)["token_ids"]
    bare = ids_of("-K", "0")
    ends = [word for id in sorted(set(bare[:N_FIRST]))[:8] for word in ("--stop-id", str(id))]
    least = ("--min-tokens", str(N_FIRST), "--repetition-penalty", "1.2", *ends)
    plain, made = (ids_of("-K", str(one), *least) for one in (0, k))
    world.check(made == plain and made[:N_FIRST] != bare[:N_FIRST] and len(made) >= N_FIRST,
                f"K = {k}: a text with --min-tokens {N_FIRST} has {len(made)} tokens")


def check_session_trees(world):
    """Siblings that are found in the text itself."""
    world.use(draft="none")
    n_siblings = sum(world.texts(
        name, lambda total: total.siblings_accepted <= total.siblings, in_flight=in_flight,
        max_tokens=100, **PLANNED).siblings for in_flight in (4, 2) for name in GREEDY_AND_COUPLED)
    n_edited = check_edited(world, [one["ids"][:20] * 2 for one in golden_prompts()], **PLANNED)
    world.check(n_siblings > 0 and n_edited > 0, f"{n_siblings} siblings, {n_edited} of edited "
                "texts")


def check_lookahead(world):
    """Rows that cost nothing check what the target has said itself, alone and beside the guesses of
    a draft model. With --trees off they check nothing. Without a draft model the guesses of second
    chains are windows."""
    world.cluster.move(FARTHER_S)
    n_windows = {}
    for draft, trees in (("none", "auto"), (DRAFT, "auto"), ("none", "off")):
        world.use("--lookup", "lookahead", "--trees", trees, draft=draft)
        for name in GREEDY_AND_COUPLED if trees == "auto" else ():
            world.texts(name, lambda total: 0 < total.siblings_accepted < total.siblings and
                        (0 < total.found_accepted < total.found if draft == "none"
                         else total.found_accepted <= total.found),
                        in_flight=4, max_tokens=100, **PLANNED)
        if draft == "none":
            shown = world.texts("greedy", in_flight=4, show_drafts=1, max_tokens=60, **PLANNED)
            n_windows[trees] = sum(guess[2] == BRANCH for one in shown.done
                                   for told in one["shown"] for guess in told["guesses"])
    world.check(n_windows["off"] == 0 < n_windows["auto"], f"{n_windows} guesses of windows")
    world.cluster.move(FAR_S)


def count_grown(total):
    """Guesses after siblings, and those of them that stay."""
    rounds = [told for one in total.done for told in one["shown"]]
    return tuple(sum(guess[2] >= GROWN for told in rounds
                     for guess in told["guesses"][:told["kept"] if kept else None])
                 for kept in (False, True))


def check_grown(world, trees):
    """A pair whose draft is often wrong and then right with its second guess, so that siblings go
    on in most rounds: after those guesses that the planner names, or that q says. With --trees
    siblings none does. A planner that has measured its first steps while the machine was busy may
    find that trees do not pay, so a coordinator without such guesses is started again."""
    world.cluster.move(FARTHER_S)
    for name in ("pair, greedy", "pair, coupled"):
        n_made = n_kept = n_turns = 0
        while n_turns < (PATIENCE if trees != "siblings" else 2) and n_kept == 0:
            if n_turns % TURNS == 0:
                world.use("--trees", trees, draft=PAIR + ",draft=1")
            made, kept = count_grown(world.texts(name, in_flight=1, n_seeds=1, show_drafts=1,
                                                 **PLANNED))
            n_made, n_kept, n_turns = n_made + made, n_kept + kept, n_turns + 1
        world.check(0 < n_kept < n_made if trees != "siblings" else n_made == 0,
                    f"{name}: {n_kept} of {n_made} guesses after siblings stay")
    check_edited(world, PAIR_PROMPTS, n_tokens=100 if ALL else 50, **PLANNED)
    world.cluster.move(FAR_S)


def check_named_tree(world, trees):
    """A tree that is named, in requests with a K of their own: the rounds have all of it, or as
    many guesses where it follows q, but for the last ones and for what would follow an end of the
    text. Returns the guesses of the greedy texts."""
    world.use("--trees", trees, draft=PAIR + ",draft=1")
    shown = []
    for name, k, n_whole in (("pair, greedy", 3, 15), ("pair, coupled", 3, 15),
                             ("pair, coupled", 5, 17)):
        def is_whole(total):
            for one in total.done:
                sizes = [len(told["guesses"]) for told in one["shown"]]
                if max(sizes) != n_whole or sum(n != n_whole for n in sizes[1:-2]) > 2:
                    return False
            return count_grown(total)[1] > 0
        total = world.texts(name, is_whole, n_seeds=1, show_drafts=1, n_draft=k)
        shown.append([told["guesses"] for one in total.done for told in one["shown"]])
    check_edited(world, PAIR_PROMPTS, fewest=1, n_draft=4)
    check_least(world, 3)
    return shown[0]


def check_choices(world, wanted):
    """A file of Medusa's choices that is the tree 3,2,1 has the guesses of that tree."""
    choices = [[a] for a in range(3)] + [[a, b] for a in range(3) for b in range(2)]
    choices += [[a, b, 0] for a in range(3) for b in range(2)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(choices, file)
        file.flush()
        world.use("--trees", "choices:" + file.name, draft=PAIR + ",draft=1")
        total = world.texts("pair, greedy", n_seeds=1, show_drafts=1, n_draft=3)
    shown = [told["guesses"] for one in total.done for told in one["shown"]]
    world.check(shown == wanted, "a file of choices has the guesses of 3,2,1")


def check_chains(world):
    """Independent chains have one length, and under rules that match tokens the text is that of
    plain decoding. Returns the guesses and the tokens under the rules that judge q."""
    world.use("--trees", "chains:3x4", "--tree-rule", "multi-path",
              draft=PAIR + ",draft=1")
    made = []

    def ask(*words):
        return world.cluster.outrider("generate", "Once upon a time", "-n", "100", "--ignore-eos",
                                      "--json", "--seed", "31", *words)
    for name, words in (("greedy", ("--temperature", "0")),
                        ("coupled", ("--temperature", "1", "--rule", "coupled"))):
        plain, chains = (json.loads(ask(*words, *one).stdout)
                         for one in (("-K", "0"), ("-K", "6", "--show-drafts")))
        rounds = [step["round"] for step in chains["steps"]]
        n_kept = sum(guess["sibling"] > 0 for one in rounds
                     for guess in one["guesses"][:one["kept"]])
        world.check(max(len(one["guesses"]) for one in rounds) == 12 and n_kept > 0 and
                    chains["token_ids"] == plain["token_ids"],
                    f"{name}: {n_kept} guesses beside the first chain stay")
    for rule, *words in (("rejection", "--tree-rule", "k-sequential"), ("block",),
                         ("block", "--tree-rule", "auto")):
        drawn = json.loads(ask("-K", "3", "--temperature", "1", "--rule", rule, "--show-drafts",
                               *words).stdout)
        rounds = [step["round"] for step in drawn["steps"]]
        made.append((drawn["token_ids"], [one["guesses"] for one in rounds]))
        n_kept = sum(guess["sibling"] > 0 for one in rounds
                     for guess in one["guesses"][:one["kept"]])
        n_wrong = n_equal = 0
        for one in rounds:
            firsts = [guess for guess in one["guesses"] if guess["place"] == 0]
            # Each first guess has been looked at, so its p is known.
            n_wrong += len(firsts) not in (0, 3) or one["kept"] > 3
            n_wrong += any(guess["p"] < 0 for guess in firsts)
            n_equal += len({guess["id"] for guess in firsts}) < len(firsts)
        world.check(n_wrong == 0 and n_equal > 0 and n_kept > 0 and len(drawn["token_ids"]) == 100,
                    f"{rule} {' '.join(words)}: {n_kept} guesses beside the first chain stay; in "
                    f"{n_equal} of {len(rounds)} rounds first guesses are equal")
    world.check(made[1][0] != made[2][0], "multi-path and traversal draw other texts")
    for words, why in ((("-K", "3", "--temperature", "0"), "rule greedy at temperature 0"),
                       (("--temperature", "1", "--rule", "block"), "the strategy is planned")):
        refused = ask("--tree-rule", "k-sequential", *words)
        world.check(refused.returncode != 0 and why in refused.stderr,
                    f"refused: {refused.stderr.strip()}")
    return made
