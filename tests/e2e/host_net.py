"""What this machine's package managers are set to, for tests that need packages: nothing of it is named in the project."""
import os, re, socket, subprocess, sys, urllib.parse, urllib.request


def lines(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.splitlines()


def apt_options():
    """What this host's apt was told about clocks and proxies holds for a build too."""
    out = []
    for line in lines("apt-config", "dump"):
        if re.match(r"Acquire::(Check-Valid-Until|Check-Date|https?::Proxy) \"[^\"]+\";", line):
            out += ["--apt-option", line.rstrip(";")]
    return out


def answers(url):
    return subprocess.run(["curl", "-sfIL", "-o", "/dev/null", "-m", "20", url], check=False).returncode == 0


def mirror():
    """The Debian mirror that this host's apt uses for more than security updates; None when it can't be reached, or isn't fetched from the net."""
    found = lines("apt-get", "indextargets", "--format", "$(REPO_URI) $(REPO_URI)dists/$(RELEASE)/InRelease", "Created-By: Packages", "Origin: Debian", "Label: Debian")
    for base, release in sorted({tuple(line.split()) for line in found if line.startswith("http")}):
        if answers(release):
            return base
    return None


def pip_index():
    """pip's own index, or the one that this host's pip was told; None when it can't be reached."""
    set_to = os.environ.get("PIP_INDEX_URL") or next(iter(lines(sys.executable, "-m", "pip", "config", "get", "global.index-url")), "")
    url = set_to or next(iter(lines(sys.executable, "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)")), "")
    return url.rstrip("/") if url and answers(url.rstrip("/") + "/six/") else None


def pip_hosts(index, package):
    """Where the package's files are: not always where the index is."""
    with urllib.request.urlopen(f"{index}/{package}/", timeout=60) as r:
        page = r.read().decode()
    return {urllib.parse.urlsplit(urllib.parse.urljoin(index + "/", h)).hostname for h in re.findall(r'href="([^"]+)"', page)} | {urllib.parse.urlsplit(index).hostname}


def allow(hosts):
    """Switches that let a computer reach these: their addresses may be private ones here."""
    nets = {a[4][0].rsplit(".", 1)[0] + ".0/24" for h in hosts for a in socket.getaddrinfo(h, 443, socket.AF_INET, socket.SOCK_STREAM)}
    return [w for net in sorted(nets) for w in ("--allow", net)]
