#!/usr/bin/env python3
"""Prints the bill of materials of a source tarball, as SPDX 2.3 JSON.

    sbom.py --version VERSION --epoch SECONDS --tarball FILE

It names each Debian package of packages.txt, and each PyPI package of requirements.txt, of docs/site/requirements.txt and of pyproject.toml
(what builds the wheel, and its extras), with its licence from licences.txt.
The output has no other input, so the same commit gives the same bytes.
"""

import argparse
import datetime
import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What a group of packages.txt is for the library. `build` also has what tests and demos take.
RELATIONSHIPS = {"build": "BUILD_DEPENDENCY_OF", "runtime": "RUNTIME_DEPENDENCY_OF"}


def debian():
    """(name, group, why) of each Debian package, once."""
    seen = {}
    for line in (HERE / "packages.txt").read_text().splitlines():
        found = re.match(r"([a-z]\S*)\s+(\S+)\s+(.*)", line)
        if found:
            seen.setdefault(found[2], (found[1], found[3]))
    return [(name, *rest) for name, rest in sorted(seen.items())]


def pypi():
    """(name, relationship, why) of each PyPI package, once: what a user needs comes before what a maintainer needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [line for extra in project["project"]["optional-dependencies"].values() for line in extra]
    seen = {}
    for lines, relationship, why in (
        (project["build-system"]["requires"], "BUILD_DEPENDENCY_OF", "builds the wheel"),
        (extras, "OPTIONAL_DEPENDENCY_OF", "an extra of the wheel"),
        ((HERE / "requirements.txt").read_text().splitlines(), "OPTIONAL_DEPENDENCY_OF", "for a Python without Debian's packages"),
        ((ROOT / "docs/site/requirements.txt").read_text().splitlines(), "DEV_TOOL_OF", "site: builds the documents' pages"),
    ):
        for line in lines:
            found = re.match(r"[A-Za-z0-9_.-]+", line)
            if found:
                seen.setdefault(found[0].lower(), (relationship, why))
    return [(name, *rest) for name, rest in sorted(seen.items())]


def licences():
    table = {}
    for line in (HERE / "licences.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            source, name, licence = line.split(None, 2)
            table[source, name] = licence.strip()
    return table


def package(source, name, comment, table, missing):
    licence = table.get((source, name))
    if licence is None:
        missing.append(f"{source} {name}")
        licence = "NOASSERTION"
    purl = f"pkg:deb/debian/{name}?distro=debian-12" if source == "debian" else f"pkg:pypi/{name}"
    return {
        "SPDXID": "SPDXRef-" + source + "-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "comment": comment,
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--tarball", required=True, type=Path)
    options = parser.parse_args()

    table, missing = licences(), []
    digest = hashlib.sha256(options.tarball.read_bytes()).hexdigest()
    itself = {
        "SPDXID": "SPDXRef-polyverso",
        "name": "polyverso",
        "versionInfo": options.version,
        "packageFileName": options.tarball.name,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "The Polyverso developers",
        "primaryPackagePurpose": "SOURCE",
    }
    packages = [itself]
    relationships = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-polyverso"}]
    for name, group, why in debian():
        packages.append(package("debian", name, f"{group}: {why}", table, missing))
        kind = RELATIONSHIPS.get(group, "DEV_TOOL_OF")
        relationships.append({"spdxElementId": packages[-1]["SPDXID"], "relationshipType": kind, "relatedSpdxElement": "SPDXRef-polyverso"})
    for name, kind, why in pypi():
        packages.append(package("pypi", name, why, table, missing))
        relationships.append({"spdxElementId": packages[-1]["SPDXID"], "relationshipType": kind, "relatedSpdxElement": "SPDXRef-polyverso"})
    created = datetime.datetime.fromtimestamp(options.epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"polyverso-{options.version}",
        "documentNamespace": f"https://polyverso.invalid/spdx/polyverso-{options.version}-{digest[:16]}",
        "creationInfo": {"created": created, "creators": ["Tool: sbom.py"]},
        "packages": packages,
        "hasExtractedLicensingInfos": [
            {
                "licenseId": "LicenseRef-public-domain",
                "name": "public domain",
                "extractedText": "The authors have placed this in the public domain.",
            }
        ],
        "relationships": relationships,
    }
    json.dump(document, sys.stdout, indent=1)
    print()
    if missing:
        sys.exit("sbom: add the licences of these packages to tools/make/licences.txt: " + ", ".join(missing))


if __name__ == "__main__":
    main()
