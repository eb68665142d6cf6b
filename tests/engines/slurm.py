"""Slurm on this machine, for a test: munged, slurmctld and slurmd in the foreground, with ports and files of their own."""

import os
import shutil
import signal
import subprocess
import time

from ports import free_ports

DAEMONS = ("munged", "slurmctld", "slurmd")
NODE = os.uname().nodename.partition(".")[0]

CONF = """
ClusterName=polyverso
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
MailProg=/bin/true
NodeName={node} NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """Why Slurm cannot run here, or None."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [name for name in (*DAEMONS, "srun", "sbatch", "scontrol", "scancel") if shutil.which(name, path=path) is None]
    if missing:
        return f"{', '.join(missing)} missing: apt install slurm-wlm munge"
    if os.geteuid() != 0:
        return "slurmd starts the users' processes, which takes root"
    return None


class Slurm:
    """One machine's Slurm, for an Engine."""

    def __init__(self, engine):
        self.engine = engine
        self.folder = folder = engine.folder
        for name in ("state", "spool", "out"):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        port = free_ports(2)
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, node=NODE, port=port, node_port=port + 1))
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        self.daemons = []

    def begin(self):
        """Starts the daemons, and waits until the node takes jobs."""
        files = [f"--{name}={self.folder}/munge.{name.partition('-')[0]}" for name in ("key-file", "pid-file", "log-file", "seed-file", "socket")]
        self._daemon("munged", "--foreground", "--force", "--num-threads=2", *files)
        self._wait("munged's socket", lambda: (self.folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D", "-i")
        self._daemon("slurmd", "-D", "-N", NODE)
        self._wait("an idle node", lambda: "State=IDLE" in self.call("scontrol", "show", "node", NODE, check=False))

    def _daemon(self, name, *arguments):
        with (self.folder / f"{name}.out").open("w") as out:
            self.daemons.append(subprocess.Popen(
                [name, *arguments], cwd=self.folder, env=self.engine.environment(**self.variables), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT,
            ))

    def _wait(self, what, holds, seconds=60.0):
        deadline = time.monotonic() + seconds
        while not holds():
            ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            assert not ended and time.monotonic() < deadline, f"no {what} within {seconds} s; ended: {ended}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self):
        files = [file for pattern in ("*.log", "*.out") for file in sorted(self.folder.glob(pattern))]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    def run(self, *command, **variables):
        """(status, output) of a command that talks to this Slurm."""
        return self.engine.run(*command, **self.variables, **variables)

    def call(self, *command, check=True, **variables):
        """The output of a command, which has to succeed if `check`."""
        status, out = self.run(*command, **variables)
        assert status == 0 or not check, f"{command} ended with {status}: {out}\n{self.logs()}"
        return out.strip()

    def submit(self, *arguments, **variables):
        """Submits a batch job; its output goes into out/. Returns its number."""
        return self.call("sbatch", "--parsable", f"--output={self.folder}/out/%A_%a", "--open-mode=append", *arguments, **variables)

    def job(self, number):
        """What scontrol says of a job: {"JobState": "RUNNING", ...}."""
        told = self.call("scontrol", "--oneliner", "show", "job", number).splitlines()[0]
        return dict(word.partition("=")[::2] for word in told.split() if "=" in word)

    def output(self, number, element=4294967294):
        """What a job has printed so far."""
        file = self.folder / "out" / f"{number}_{element}"
        return file.read_text() if file.exists() else ""

    def wait_for(self, number, *states, seconds=90.0):
        """Waits until all elements of a job are in one of the states."""
        def states_now():
            return [line.split("JobState=")[1].split()[0] for line in self.call("scontrol", "--oneliner", "show", "job", number).splitlines()]
        deadline = time.monotonic() + seconds
        while not set(now := states_now()) <= set(states):
            assert time.monotonic() < deadline, f"job {number} is {now} after {seconds} s, not {states}\n{self.output(number)}\n{self.logs()}"
            time.sleep(0.2)
        return now

    def wait_for_output(self, number, text, count=1, seconds=90.0):
        """Waits until the output of a job has this text so many times."""
        self._wait(f"{text!r} in the output of job {number}", lambda: self.output(number).count(text) >= count, seconds)

    def end(self):
        """Ends the jobs, then the daemons."""
        if len(self.daemons) == len(DAEMONS):
            self.run("scancel", "--full", "--user=root")
            self.run("scancel", "--signal=KILL", "--user=root")
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
                try:
                    daemon.wait(20)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
