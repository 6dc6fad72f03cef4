"""The options of the program are arguments of the package; each exception is listed here."""

import inspect
import re
import subprocess

import pytest

import gpuws
from gpuws import _command, _terms, place

# Options without an argument. What a program prints, and how: a function returns the whole object.
OUTPUT = "help json quiet color format explain svg trace log by output force"
TABLE = "list-gpus xml-format columns query-gpu query-compute-apps loop loop-ms user mine pid gpu"
FILTER = "holders min-confidence ignore gpu"
# Another machine, or the same at another time; another library, another directory of leases.
MACHINE = "nvml claims host hosts-from replay at paste root"
# The package claims for this process, which is simulated by `gpuws.sim`.
OWN = "hold export placeholder for release sim deadline"
RUN = "on-death no-nvidia-smi handoff-timeout report end-with-input"
# `gpuws.mem.limit` limits the frameworks.
LIMIT = "context framework torch-version keep-env"
TIMED = "fetch inter-op-threads intra-op-threads memory"

# Arguments with other names, for each command.
CLAIM = {"n": "gpus", "exclude": "not", "wait": "wait no-wait"}
ISOLATED = {**CLAIM, "timeout": "time-limit", "wait_timeout": "timeout"}

COMMANDS = [
    ("claim", [gpuws.claim, gpuws.hold, gpuws.aclaim], CLAIM, f"{LIMIT} {OWN}"),
    ("run", [gpuws.isolated], ISOLATED, f"{LIMIT} {RUN} sim deadline"),
    ("reap", [gpuws.reap], {}, ""),
    ("report", [gpuws.report], {}, "sim deadline"),
    ("place model", [place.model], {}, ""),
    ("place graph", [place.graph], {}, f"schedule run {TIMED}"),
    ("place graph", [place.schedule], {}, f"schedule run hard {TIMED}"),
    ("place graph", [place.run], {}, "schedule run"),
    ("status", [gpuws.status], {}, f"{TABLE} {FILTER}"),
    ("doctor", [gpuws.doctor], {"looks": ""}, FILTER),
    ("leases", [gpuws.leases], {}, ""),
    ("mem explain", [gpuws.mem.explain], {"live": "no-live"}, ""),
]


def options_of(command):
    """Returns the options in the help of a command."""
    shown = [gpuws.find_gpuws_bin(), *command.split(), "--help"]
    shown = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    # A description is further to the right.
    return set(re.findall(r"^ {2,6}(?:-\w, )?--([a-z-]+)", shown, re.MULTILINE))


def arguments_of(function):
    """Returns the arguments of a function that have names, and their types."""
    found = {}
    for name, each in inspect.signature(function).parameters.items():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            terms = re.fullmatch(r"Unpack\[(\w+)\]", each.annotation)[1]
            found |= getattr(_terms, terms, getattr(place, terms, None)).__annotations__
        elif each.kind is inspect.Parameter.KEYWORD_ONLY or name == "n":
            found[name] = each.annotation
    return found


@pytest.mark.parametrize(("command", "functions", "named", "without"), COMMANDS)
def test_options_are_arguments(command, functions, named, without):
    without = set(f"{without} {OUTPUT} {MACHINE}".split())
    for function in functions:
        found = set()
        for name in arguments_of(function):
            found |= set(named.get(name, name.strip("_").replace("_", "-")).split())
        # `quiet` of a claim is an argument, for the lines on standard error.
        assert found - {"quiet"} == options_of(command) - without, function


COMMAND_FUNCTIONS = [gpuws.reap, gpuws.report, place.model, place.graph, place.schedule, place.run]


@pytest.mark.parametrize("function", COMMAND_FUNCTIONS)
def test_each_argument_is_passed_on(function, monkeypatch):
    class Started(Exception):
        """The program was to be started with these words."""

    def start(words, **_):
        raise Started(words)

    monkeypatch.setattr(_command, "Popen", start)
    others = {
        **dict.fromkeys(["yes", "hard", "accept_used"], True),
        **dict.fromkeys(["memory", "host_memory", "margin"], "1GiB"),
    }
    for name in arguments_of(function):
        with pytest.raises(Started) as raised:
            function(*[] if function is gpuws.reap else ["-file"], **{name: others.get(name, "1")})
        option = "--" + name.replace("_", "-")
        (words,) = raised.value.args
        assert any(word == option or word.startswith(f"{option}=1") for word in words), name


def test_claims_have_the_same_arguments_and_types():
    def text(types):
        return {name: getattr(each, "__forward_arg__", each) for name, each in types.items()}

    claim = text(arguments_of(gpuws.claim))
    assert text(arguments_of(gpuws.hold)) == text(arguments_of(gpuws.aclaim)) == claim
    isolated = text(arguments_of(gpuws.isolated))
    shared = text(_terms.Choice.__annotations__)
    assert shared.items() <= isolated.items() and shared.items() <= claim.items()
