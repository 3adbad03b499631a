from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from chalicelib.leases.machine import kernel_boot_id, living_processes, process_facts, read_identity


def test_a_process_is_named_by_pid_and_start(tmp_path: Path) -> None:
    first = read_identity(tmp_path, random.Random(1))
    again = read_identity(tmp_path, random.Random(2))
    assert first == again
    assert (first.pid, first.kernel_boot_id) == (os.getpid(), kernel_boot_id())
    assert first.pid_started > 0
    assert first.pid_namespace.startswith("pid:[")


def test_two_state_folders_are_two_machines(tmp_path: Path) -> None:
    machines = {read_identity(tmp_path / name, random.Random(name)).machine_id for name in ("a", "b")}
    assert len(machines) == 2


def test_facts_survive_a_program_name_with_spaces_and_parentheses(tmp_path: Path) -> None:
    program = tmp_path / "a) R (b c"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as child:
        facts = process_facts(child.pid)
        assert facts is not None
        assert (facts.pid, facts.parent, facts.session, facts.group) == (child.pid, os.getpid(), child.pid, child.pid)
        assert facts in living_processes()
        child.communicate(b"\n")
    assert process_facts(child.pid) is None


def test_a_zombie_is_gone() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert process_facts(child) is None
    finally:
        os.waitpid(child, 0)
