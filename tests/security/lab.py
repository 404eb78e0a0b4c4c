"""What the tests here share: TAP, the programs, and the ways a keeper can be run."""
import collections, os, pwd, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
import bureau_test
from bureau_test import done, ok, skip
BUILD = os.path.abspath(bureau_test.BUILD)
CTL, KEEPER = os.path.join(BUILD, "src/keeper/keeperctl"), os.path.join(BUILD, "bureau-keeper")
TEST_USER = "bureau-test"

# prefix: of a command line; ids: its computers have 65,536 of them
Mode = collections.namedtuple("Mode", "name prefix uid ids")


def many_ids():
    """A plain user with a granted range; None where there is no such user."""
    try:
        u = pwd.getpwnam(TEST_USER)
        granted = any(l.startswith(TEST_USER + ":") for l in open("/etc/subuid")) and os.path.exists("/usr/bin/newuidmap")
    except (KeyError, OSError):
        granted = False
    if granted:
        return Mode("plain user, many ids", ["setpriv", f"--reuid={u.pw_uid}", f"--regid={u.pw_gid}", "--init-groups"], u.pw_uid, True)


def modes():
    """Real root, a plain user with 65,536 ids, one with a single id; or whoever we are."""
    if os.geteuid() != 0:
        yield Mode("plain user", [], os.geteuid(), None)
        return
    yield Mode("root", [], 0, True)
    many = many_ids()
    if many:
        yield many
    else:
        skip(f"no user {TEST_USER} with a range in /etc/subuid (useradd -m {TEST_USER})")
    yield Mode("plain user, one id", ["setpriv", "--reuid=61234", "--regid=61234", "--clear-groups"], 61234, False)


def needs(path, what):
    if not os.path.exists(path):
        print(f"1..0 # SKIP build first: no {what}")
        sys.exit(0)
