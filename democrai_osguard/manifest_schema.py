"""The JSON Schema of manifests, made from the same table as the parser.

`python -m democrai_osguard.manifest_schema` prints what ships as manifest.schema.json. A schema
knows shapes, not targets: what a target means is the parser's to say.
"""

from __future__ import annotations

import json
import sys

from democrai_osguard import manifest_shape as shape
from democrai_osguard.access import OPERATIONS, ResourceType, SubjectType

Schema = dict[str, object]

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": {"type": "string", "minLength": 1}}


def manifest_schema() -> Schema:
    """Return the schema that a manifest of any kind meets; `$defs` has one for each shape."""
    kinds = (SubjectType.MODULE, SubjectType.ENGINE, SubjectType.EXTRACTOR)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "democrai-osguard manifest",
        "anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds],
        "$defs": {
            "rule": {"oneOf": [_rule(resource) for resource in ResourceType]},
            **{str(kind): _kind(kind) for kind in kinds},
        },
    }


def _rule(resource: ResourceType) -> Schema:
    properties: Schema = {
        "resource_type": {"const": str(resource)},
        "operation": {"enum": [str(operation) for operation in OPERATIONS[resource]]},
        "target": {"type": "string", "minLength": 1},
    }
    return _closed(properties) | {"required": list(shape.ACCESS_KEYS)}


def _kind(kind: SubjectType) -> Schema:
    phase = _closed({key: _POLICY[key] for key in shape.phase_keys(kind)})
    known: Schema = _POLICY | dict.fromkeys(shape.PHASES, phase)
    return _closed({key: known.get(key, _TEXT) for key in shape.top_keys(kind)})


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


_POLICY: Schema = {
    "access": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
    "allowed_imports": {
        "type": "array",
        "items": {"type": "string", "pattern": shape.IMPORT_ROOT},
    },
    shape.CONFIG_URLS: _TEXTS,
}


if __name__ == "__main__":
    json.dump(manifest_schema(), sys.stdout, indent=2)
    sys.stdout.write("\n")
