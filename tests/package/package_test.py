#!/usr/bin/env python3
"""The package of `make deb`, in a minimal Debian: package_test.py BUILD [TEST...]

The tests run the commands of README.md and contrib/, which they read from there."""

import re
import sys
import unittest
from pathlib import Path

import fresh_debian
from fresh_debian import ROOT

BUILD = Path("build")
# perftest's row: bytes, iterations, and rates that are above zero.
ROW = re.compile(r"^ *65536 +\d+ +[0-9.]*[1-9][0-9.]* ", re.M)


def package():
    found = sorted(BUILD.glob("softhca_*.deb"))
    assert len(found) == 1, f"make deb: {found}"
    return found[0].resolve()


def readme_commands():
    """The install line, and the line below it."""
    lines = (ROOT / "README.md").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("sudo apt install ./build/softhca"))
    return lines[at:at + 2]


def container_steps():
    """The recipe as a script, and the words that a container runs without a command."""
    text = (ROOT / "contrib/container/Containerfile").read_text().replace("\\\n", " ")
    script, user, words = ["set -e", "cd /tmp/files"], "root", []
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "COPY":
            script.append(f"cp {rest}")
        elif word == "RUN":
            script.append(rest)
        elif word == "USER":
            user = rest
        elif word in ("ENTRYPOINT", "CMD"):
            words += re.findall(r'"([^"]*)"', rest)
        else:
            assert not word or word in ("#", "FROM"), word
    return "\n".join(script), user, words


def action_steps():
    """The scripts of the action's steps, by name."""
    text = (ROOT / "contrib/action/action.yml").read_text()
    steps = re.split(r"^    - name: ", text, flags=re.M)[1:]
    found = {}
    for step in steps:
        name, _, rest = step.partition("\n")
        body = rest.split("      run: |\n", 1)[1]
        found[name] = re.sub(r"^        ", "", body, flags=re.M)
    return found


class PackageTest(unittest.TestCase):
    """Each is a test of ctest by itself (package.install_readme, ...), so that they run beside each other."""

    def good(self, answer):
        status, output = answer
        self.assertEqual(status, 0, output)
        return output

    def test_readme(self):
        """Its two commands write by RDMA."""
        install, run = readme_commands()
        self.assertTrue(run.startswith("softhca run -- "), run)
        # As an unprivileged user.
        script = f"""set -e
mkdir -p /tmp/x/build && cp /tmp/files/*.deb /tmp/x/build && cd /tmp/x
apt-get update -qq
{install.replace("sudo apt install", "apt-get install -y")}
! command -v cc && ! command -v make
useradd user
cat >/tmp/run <<'EOF'
{run}
EOF
setpriv --reuid=user --regid=user --clear-groups env HOME=/tmp timeout 100 sh /tmp/run
"""
        self.assertRegex(self.good(fresh_debian.run(script, [package()])), ROW)

    def comes_and_goes_without_a_trace(self, suite):
        script = """set -e
apt-get update -qq
apt-get install -y --no-install-recommends /tmp/files/*.deb ibverbs-utils
useradd user
for i in 1 2; do setpriv --reuid=user --regid=user --clear-groups env HOME=/tmp softhca run ibv_devinfo -v; done
apt-get purge -y softhca
! find / -xdev -name '*softhca*' -not -path '/proc/*' -not -path '/tmp/files/*' -not -path '/var/log/*' | grep .
"""
        self.assertIn("PORT_ACTIVE", self.good(fresh_debian.run(script, [package()], suite=suite)))

    def test_trixie(self):
        self.comes_and_goes_without_a_trace("trixie")

    def test_sid(self):
        self.comes_and_goes_without_a_trace("sid")

    def test_container(self):
        """One of the recipe shows the device."""
        script, user, words = container_steps()
        self.assertEqual(words[:3], ["softhca", "run", "--"])
        script += f"\nsetpriv --reuid={user} --regid={user} --clear-groups env HOME=/home/{user} {' '.join(words)}\n"
        self.assertIn("PORT_ACTIVE", self.good(fresh_debian.run(script, [package()])))

    def test_action(self):
        """Steps after it find the device."""
        steps = action_steps()
        script = f"""set -e
export GITHUB_ENV=/tmp/github_env PACKAGE=/tmp/files/{package().name} GITHUB_ACTION_PATH=/nowhere
bash -e <<'EOF'
{steps["Install it"]}EOF
cat >/tmp/show <<'EOF'
{steps["Show the device to what follows"]}EOF
bash -e /tmp/show
cat /tmp/github_env
# As the runner does: each line is a variable of the following steps.
set -a && . /tmp/github_env
ibv_devinfo -v
"""
        self.assertIn("PORT_ACTIVE", self.good(fresh_debian.run(script, [package()])))


class PagesTest(unittest.TestCase):
    """The installed pages and the program's own help."""

    def options(self, command):
        import subprocess
        text = subprocess.run([BUILD / "softhca", *command, "--help"], capture_output=True, text=True,
                              check=True).stdout
        return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M)), set(
            re.findall(r"^  ([a-z]+) ", text.partition("Subcommands:")[2], re.M))

    def page(self, name):
        text = (ROOT / f"packaging/man/{name}.1").read_text().replace("\\-", "-")
        # Tags alone: .TP and the line below it.
        tags = "\n".join(re.findall(r"^\.TP\n(.*)", text, re.M))
        return set(re.findall(r"--[a-z-]+", tags)), set(re.findall(r"^\.B ([a-z]+)$", tags, re.M))

    def test_man_pages_have_the_options_and_commands_that_there_are(self):
        options, commands = self.page("softhca")
        self.assertEqual((options, commands), self.options([]))
        for command in ("run", "env"):
            self.assertEqual(self.page(f"softhca-{command}")[0], self.options([command])[0])

    def installed(self):
        import subprocess
        import tempfile
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        subprocess.run([ROOT / "packaging/installed.py", BUILD / "softhca", "1.2.3", folder.name], check=True)
        return Path(folder.name) / "share"

    def test_each_command_has_a_man_page_that_names_its_options(self):
        import gzip
        pages = self.installed() / "man/man1"
        for command in self.options([])[1]:
            text = gzip.decompress((pages / f"softhca-{command}.1.gz").read_bytes()).decode().replace("\\-", "-")
            self.assertIn('"softhca 1.2.3"', text.partition("\n")[0], command)
            for option in self.options([command])[0]:
                self.assertIn(option, text, command)
            self.assertIn(f"softhca-{command}", gzip.decompress((pages / "softhca.1.gz").read_bytes()).decode().replace("\\-", "-"))

    def test_installed_pages_link_to_what_is_installed(self):
        doc = self.installed() / "doc/softhca"
        example = doc / "examples/libibverbs/hello_rdma.c"
        example.parent.mkdir(parents=True)
        example.touch()
        links = 0
        for page in doc.glob("*.md"):
            for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", page.read_text()):
                if "://" not in target:
                    self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")
                    links += 1
        self.assertGreater(links, 10)
        self.assertIn("/usr/share/doc/softhca/examples/libibverbs/hello_rdma.c", (doc / "first-program.md").read_text())

    def complete(self, *words):
        import os
        import subprocess
        script = """. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _softhca; printf '%s\\n' "${COMPREPLY[@]}" """
        words = [str((BUILD / "softhca").resolve()), *words]
        return subprocess.run(["bash", "-c", script, "bash", ROOT / "packaging/completion/softhca", *words],
                              capture_output=True, text=True, check=True, env=os.environ).stdout.split()

    def test_bash_completes_commands_options_and_models(self):
        self.assertEqual(set(self.complete("")) & {"run", "env", "serve"}, {"run", "env", "serve"})
        self.assertEqual(self.complete("ru"), ["run"])
        self.assertEqual(self.complete("run", "--fab"), ["--fabric"])
        self.assertEqual(self.complete("serve", "--device", "js") + self.complete("serve", "--device", "ji"),
                         ["jingzhao"])
        self.assertIn("ls", self.complete("run", "--", "ls"))

    def test_bash_completes_the_program_of_a_run(self):
        self.assertIn("ls", self.complete("run", "ls"))
        self.assertIn("ls", self.complete("run", "--fabric", "lab", "ls"))
        self.assertNotIn("ls", self.complete("run", "--fabric", "ls"))
        self.assertEqual(self.complete("run", "--fabric", "lab", "--pca"), ["--pcap"])


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1))
    unittest.main(verbosity=2)
