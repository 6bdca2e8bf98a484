"""Debian packages, from the mirror that this machine's own apt uses.

The machine may be Debian 12 or 13; the guest is always trixie. So the mirror (with its options:
trusted, signed-by, ...) is taken from apt's sources, the suites are the guest's, and apt keeps its
state in the cache, so that nothing on the machine changes. Proxies, credentials and the rest of
/etc/apt/apt.conf* stay in force, because apt reads them as always."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from . import cache
from .report import Problem, say, warn

SUITE = "trixie"
SUITES = (SUITE, "bookworm", "sid")  # of the root file system; kernels and QEMU are always trixie's
BACKPORTS = "trixie-backports"
CODENAMES = ("bookworm", "trixie", "forky", "duke", "sid", "oldstable", "stable", "testing",
             "unstable", "oldoldstable", "bullseye")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def one_line_sources(text):
    """`deb [options] uri suite components...` lines as (uri, suite, components, options)."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match:
            options = dict(word.split("=", 1) for word in (match[1] or "").split() if "=" in word)
            yield match[2], match[3], match[4].split(), options


def deb822_sources(text):
    """The stanzas of a .sources file, in the same form."""
    for stanza in re.split(r"\n\s*\n", text):
        fields, name = {}, None
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in " \t" and name:
                fields[name] += "\n" + line.strip()
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = value.strip()
        enabled = fields.get("enabled", "yes").lower() not in ("no", "false", "0")
        if not enabled or "deb" not in fields.get("types", "").split():
            continue
        options = {name: ",".join(value.split()) for name, value in fields.items()
                   if name in ("trusted", "allow-insecure", "allow-weak", "check-valid-until",
                               "check-date", "by-hash", "snapshot")}
        if "signed-by" in fields:
            options["signed-by"] = fields["signed-by"]
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield uri, suite, fields.get("components", "").split(), options


def configured_sources(directory="/etc/apt"):
    directory = Path(directory)
    files = [directory / "sources.list"]
    if (directory / "sources.list.d").is_dir():
        files += sorted((directory / "sources.list.d").iterdir())
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        if file.suffix == ".list":
            yield from one_line_sources(text)
        elif file.suffix == ".sources":
            yield from deb822_sources(text)


def pick_mirrors(sources):
    """The (uri, options) of the Debian archive, and of its security archive or None."""
    main = security = None
    for uri, suite, components, options in sources:
        if "main" not in components or uri.startswith("cdrom:"):
            continue
        if suite in CODENAMES and main is None:
            main = uri, options
        if re.fullmatch(rf"({'|'.join(CODENAMES)})(-security|/updates)", suite):
            security = security or (uri, options)
    return main, security


def sources_lines(suite=SUITE):
    """The lines of the sources.list: trixie, its updates, security and backports; or sid, which has none."""
    override = os.environ.get("SOFTHCA_MIRROR")
    if override:
        main, security = (override, {}), None
    else:
        main, security = pick_mirrors(configured_sources())
    if main is None:
        raise Problem("no Debian mirror found in /etc/apt/sources.list or /etc/apt/"
                      "sources.list.d; set SOFTHCA_MIRROR to the URL of one")

    def line(mirror, suite):
        uri, options = mirror
        options = dict(options)
        signed_by = options.get("signed-by", "")
        if signed_by.lstrip("\n").startswith("-----BEGIN"):
            options["signed-by"] = embedded_key(signed_by)
        elif not signed_by and options.get("trusted") != "yes":
            options["signed-by"] = ",".join(trusted_keys())
        words = " ".join(f"{name}={value}" for name, value in sorted(options.items()))
        return f"deb {f'[{words}] ' if words else ''}{uri} {suite} main"

    if suite != SUITE:
        return [line(main, suite)]
    lines = [line(main, suite) for suite in (SUITE, f"{SUITE}-updates", BACKPORTS)]
    if security:
        lines.append(line(security, f"{SUITE}-security"))
    return lines


def trusted_keys():
    """Debian's keyring (an older release's apt may not trust trixie's keys by itself), and the keys that this machine trusts
    for mirrors with keys of their own."""
    keys = [Path(KEYRING), Path("/etc/apt/trusted.gpg"),
            *sorted(Path("/etc/apt/trusted.gpg.d").glob("*.gpg")),
            *sorted(Path("/etc/apt/trusted.gpg.d").glob("*.asc"))]
    return [str(key) for key in keys if key.is_file() and key.stat().st_size
            and os.access(key, os.R_OK)]


def embedded_key(text):
    """A deb822 source may carry its key inline (a lone dot stands for an empty line)."""
    body = "\n".join("" if row == "." else row for row in text.strip().splitlines()) + "\n"
    path = cache.root() / f"mirror-{cache.key(body)}.asc"
    path.write_text(body)
    return str(path)


class Apt:
    """apt with its state in a separate directory and no package installed."""

    def __init__(self, suite=SUITE):
        self.suite = suite
        if not shutil.which("apt-get"):
            raise Problem("apt-get not found: the guest is built from Debian packages, "
                          "so guest/run needs a Debian machine")
        self.directory = cache.root() / ("apt" if suite == SUITE else f"apt-{suite}")
        for name in ("lists/partial", "etc", "archives/partial"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.sources = self.directory / "etc/sources.list"
        self.config = self.directory / "etc/apt.conf"
        (self.directory / "status").touch()

    def _configure(self, lines):
        self.sources.write_text("\n".join(lines) + "\n")
        self.config.write_text(f"""
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Install-Pkgs;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear APT::Default-Release;
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Retries "3";
Acquire::Languages "none";
Dir::State "{self.directory}";
Dir::State::Lists "{self.directory}/lists";
Dir::State::status "{self.directory}/status";
Dir::State::extended_states "{self.directory}/extended_states";
Dir::Cache "{self.directory}";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::SourceList "{self.sources}";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Log "{self.directory}";
""")

    def _run(self, *arguments, directory=None, program="apt-get"):
        result = subprocess.run([program, "-q", "-c", str(self.config), *arguments],
                                cwd=directory, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=dict(os.environ, DEBIAN_FRONTEND="noninteractive",
                                         LC_ALL="C.UTF-8"))
        return result.returncode, result.stdout

    def _checked(self, *arguments, **options):
        code, output = self._run(*arguments, **options)
        if code:
            raise Problem(f"apt-get {' '.join(arguments)} failed:\n{output.strip()}\n"
                          "Is the Debian mirror of /etc/apt reachable? "
                          "SOFTHCA_MIRROR=URL uses another.")
        return output

    def update(self):
        """Fetches the package lists. A mirror without the optional suites is good enough."""
        lines = sources_lines(self.suite)
        self._configure(lines)
        code, output = self._run("update", "-o", "APT::Update::Error-Mode=any")
        if code:
            optional = [row for row in lines
                        if not re.search(rf" {self.suite}(-backports)? main", row)]
            warn(f"the mirror does not serve everything; trying without {len(optional)} suites "
                 f"of updates:\n{output.strip()[-800:]}")
            self._configure([row for row in lines if row not in optional])
            self._checked("update", "-o", "APT::Update::Error-Mode=any")
        return self

    def mmdebstrap_sources(self):
        with cache.lock("apt"):
            return self.sources.read_text().splitlines()

    def candidate(self, package, release=None):
        """The fields of the version that would be installed, as a dict."""
        pin = ["-t", release] if release else []
        with cache.lock("apt"):  # another run may refresh the lists
            text = self._checked("show", "--no-all-versions", *pin, package, program="apt-cache")
        return dict(row.split(": ", 1) for row in text.splitlines() if re.match(r"\S+: ", row))

    def require(self, packages):
        """Refuses names that this Debian does not have, before anything is built."""
        for package in packages:
            with cache.lock("apt"):
                code, _ = self._run("show", package, program="apt-cache")
            if code:
                raise Problem(f"--package {package}: Debian {self.suite} has no package of that name")

    def download(self, packages, directory, release=None, closure=False):
        """Puts the .deb files of the packages (closure: and all they depend on) in directory."""
        directory.mkdir(parents=True, exist_ok=True)
        pin = ["-t", release] if release else []
        with cache.lock("apt"):
            if closure:
                (directory / "partial").mkdir(exist_ok=True)
                self._checked("install", "-y", "--download-only", *pin, *packages,
                              "-o", f"Dir::Cache::archives={directory}")
            else:
                self._checked("download", *pin, *packages, directory=directory)
        return sorted(directory.glob("*.deb"))


_updated = {}


def updated(suite=SUITE):
    """An Apt with fresh lists, fetched at most once in a run."""
    with cache.lock("apt"):
        if suite not in _updated:
            say("reading the Debian package lists" + ("" if suite == SUITE else f" of {suite}"))
            _updated[suite] = Apt(suite).update()
    return _updated[suite]


def extract(debs, directory):
    directory.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        subprocess.run(["dpkg-deb", "-x", str(deb), str(directory)], check=True)
