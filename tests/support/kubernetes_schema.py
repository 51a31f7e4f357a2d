"""Manifests rendered by kubectl's kustomize and by Helm's own engine, and their schemas: those of
Kubernetes (the package kubernetes-validate) and those of custom kinds (kubernetes_kinds.yaml)."""
import functools
import os
import subprocess
import sys

import jsonschema
import kubernetes_validate
import referencing
import yaml

SUPPORT = os.path.dirname(os.path.abspath(__file__))
# The oldest Kubernetes whose pods may sleep in preStop without a program for it, and the newest.
VERSIONS = ("1.30.0", "1.37.0")
# It reads its definitions, several megabytes, for every object.
kubernetes_validate.utils.schema_contents = functools.lru_cache(
    kubernetes_validate.utils.schema_contents)


def load(text):
    return [each for each in yaml.safe_load_all(text) if each]


def render_kustomize(folder):
    kubectl = os.path.join(os.path.dirname(sys.executable), "kubectl")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, encoding="utf-8",
                          timeout=60, check=False)
    if done.returncode or done.stderr:
        raise ValueError(f"kubectl kustomize {folder}: {done.stderr}")
    return load(done.stdout)


def render_chart_texts(folder, values, namespace):
    """{name of a template: the text that it makes}."""
    import helm_python  # large, so only where it is needed
    with helm_python.Chart.load(folder) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name="outrider", namespace=namespace)
    return {name: text for name, text in texts.items() if name.endswith(".yaml")}


def render_chart(folder, values, namespace):
    texts = render_chart_texts(folder, values, namespace)
    return [each for text in texts.values() for each in load(text)]


def kind_of(item):
    return f"{item.get('apiVersion')} {item.get('kind')}"


def title(item):
    return f"{item.get('kind')} {item.get('metadata', {}).get('name')}"


def _core_definitions(version):
    schemas = os.path.join(os.path.dirname(kubernetes_validate.__file__), "kubernetes-json-schema")
    path = os.path.join(schemas, f"v{version}-local-strict", "_definitions.json")
    with open(path, encoding="utf-8") as file:
        return yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _finish(schema, core):
    """The schema with its short references in full, and every object strict."""
    if isinstance(schema, list):
        return [_finish(each, core) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        name = schema["$ref"]
        if name.startswith("core/"):
            return {"$ref": f"{core}#/$defs/io.k8s.api.core.v1.{name[5:]}"}
        return {"$ref": f"#/$defs/{name}"}
    done = {key: _finish(value, core) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        done.setdefault("additionalProperties", False)
    return done


class Schemas:
    """Says what is wrong with the form of manifests."""

    def __init__(self):
        with open(os.path.join(SUPPORT, "kubernetes_kinds.yaml"), encoding="utf-8") as file:
            self.source = yaml.safe_load(file)
        core = _core_definitions(VERSIONS[0])
        meta = {"$ref": f"{core['$id']}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
        registry = referencing.Registry().with_resource(
            core["$id"], referencing.Resource.from_contents(core))
        shared = _finish(self.source["definitions"], core["$id"])
        self.custom = {}
        for kind, spec in self.source["kinds"].items():
            schema = {"type": "object", "additionalProperties": False, "required": ["spec"],
                      "properties": {"apiVersion": {}, "kind": {}, "metadata": meta,
                                     "spec": _finish(spec, core["$id"])},
                      "$defs": shared}
            self.custom[kind] = jsonschema.Draft202012Validator(schema, registry=registry)

    def problems(self, item):
        name = title(item)
        if not item.get("metadata", {}).get("name"):
            return [f"{name}: has no name"]
        if kind_of(item) in self.custom:
            return [f"{name}: {'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
                    for error in self.custom[kind_of(item)].iter_errors(item)]
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = "/".join(map(str, error.absolute_path))
                return [f"{name}: {where}: {error.message[:300]} (Kubernetes {version})"]
            except kubernetes_validate.SchemaNotFoundError:
                return [f"{name}: no kind {kind_of(item)} is known"]
        return []


def _compare(ours, theirs, shared, where):
    """Returns what our schema allows and a published one does not."""
    while "$ref" in ours:
        if ours["$ref"].startswith("core/"):
            found = set(theirs.get("properties", {}))
            return [] if {"metadata", "spec"} <= found else [f"{where}: is no pod template there"]
        ours = shared[ours["$ref"]]
    kinds = ours.get("type")
    kinds = set(kinds if isinstance(kinds, list) else [kinds])
    theirs_kinds = ({"integer", "string"} if theirs.get("x-kubernetes-int-or-string")
                    else {theirs.get("type")})
    found = [] if kinds <= theirs_kinds else [f"{where}: {kinds} here, {theirs_kinds} there"]
    if "enum" in ours and "enum" in theirs and not set(ours["enum"]) <= set(theirs["enum"]):
        found.append(f"{where}: {ours['enum']} here, {theirs['enum']} there")
    if not set(theirs.get("required", [])) <= set(ours.get("required", [])):
        found.append(f"{where}: {theirs['required']} are required there")
    if "items" in ours:
        found += _compare(ours["items"], theirs["items"], shared, f"{where}[]")
    for name, schema in ours.get("properties", {}).items():
        further = theirs.get("additionalProperties")
        below = theirs.get("properties", {}).get(
            name, further if isinstance(further, dict) else None)
        if below is None:
            found.append(f"{where}.{name}: is not there")
        else:
            found += _compare(schema, below, shared, f"{where}.{name}")
    return found


def compare_with_published(folder):
    """Problems, and the kinds that were compared with CustomResourceDefinitions in a folder."""
    source = Schemas().source
    found, compared = [], set()
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            crds = load(file)
        for crd in crds:
            for version in crd["spec"]["versions"]:
                kind = f"{crd['spec']['group']}/{version['name']} {crd['spec']['names']['kind']}"
                if kind not in source["kinds"]:
                    continue
                compared.add(kind)
                theirs = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                found += _compare(source["kinds"][kind], theirs, source["definitions"], kind)
    return found, compared, set(source["kinds"])
