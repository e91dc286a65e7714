//! Processes of a live run: the caller, the supervisor and the engine, and the pipes between them.
//!
//! The caller forks a supervisor, which creates a PID namespace and forks the engine as its PID 1. Each process dies
//! with its parent, and when the engine dies the kernel kills every process in the PID namespace, daemonised ones
//! included. There is no exec: an interpreter that dropped its privileges may not be able to start itself again.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, pipe2};
use skyhop_engine::{Control, Ended, EngineError};
use skyhop_experiment::Experiment;
use skyhop_record::{PieceReader, Sink};
use skyhop_units::{Duration, Instant};
use tracing::{debug, info};

use crate::message::{self, Message};
use crate::{LiveOptions, engine};
use skyhop_host::error::{Context, HostError};
use skyhop_host::isolation::{
    close_all_except, die_with_parent, enter_own_namespaces, exit_now, mount_own_proc,
    reset_signals,
};
use skyhop_host::{internet, program};

/// Interval at which the caller's callback is asked whether to stop, in ms.
const CONTROL_INTERVAL_MS: u16 = 50;

/// Run the engine in a forked process and wait for its result.
pub(crate) fn run(
    experiment: &Experiment,
    options: &LiveOptions,
    sink: &mut dyn Sink,
    control: &mut dyn Control,
) -> Result<Ended, EngineError> {
    if let Some(program) = &options.program {
        program::check(program)?;
    }
    if options.internet {
        internet::check()?;
    }
    let (results, to_caller) = pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")?;
    let (from_caller, orders) = pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")?;
    let caller = getpid();
    // SAFETY: the child touches only memory that belongs to this call, libc's allocator, which
    // glibc makes usable after a fork, and system calls; it leaves through _exit. A log, if it is on, takes locks that
    // threads of the caller hold only while they log themselves.
    match unsafe { fork() }.context("cannot start the engine's process")? {
        ForkResult::Child => {
            let ends = EngineEnds { to_caller: to_caller.into(), from_caller };
            supervise(caller, ends, experiment, options)
        }
        ForkResult::Parent { child } => {
            debug!(pid = %child, "supervisor started");
            drop((to_caller, from_caller));
            let supervisor = Supervisor { pid: child, reaped: false };
            let total = experiment.duration;
            follow(supervisor, results.into(), orders.into(), sink, |elapsed| {
                if let Some(elapsed) = elapsed {
                    control.progress(elapsed, total);
                }
                control.interrupted()
            })
        }
    }
}

/// Engine's ends of the result pipe and the order pipe.
struct EngineEnds {
    to_caller: File,
    from_caller: OwnedFd,
}

// --- in the caller's process ---

/// The caller's handle of the supervisor process, which is killed and reaped on drop.
struct Supervisor {
    pid: Pid,
    reaped: bool,
}

impl Supervisor {
    /// Reap the supervisor; return its exit status or signal in words.
    fn wait(&mut self) -> String {
        loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                ended => {
                    self.reaped = true;
                    return match ended {
                        Ok(WaitStatus::Exited(_, status)) => format!("status {status}"),
                        Ok(WaitStatus::Signaled(_, signal, _)) => signal.to_string(),
                        // A caller that reaps every child may have reaped this one first.
                        _ => "cause unknown".to_owned(),
                    };
                }
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if !self.reaped && kill(self.pid, Signal::SIGKILL).is_ok() {
            self.wait();
        }
    }
}

/// Forward the engine's messages to `sink` until the run is over. `interrupted` receives the progress and returns
/// whether to stop.
fn follow(
    mut supervisor: Supervisor,
    mut results: File,
    mut orders: File,
    sink: &mut dyn Sink,
    mut interrupted: impl FnMut(Option<Duration>) -> bool,
) -> Result<Ended, EngineError> {
    let mut reader = PieceReader::default();
    let mut chunk = vec![0; 1 << 16];
    let (mut stopping, mut elapsed) = (false, None);
    loop {
        if interrupted(elapsed.take()) && !stopping {
            stopping = true;
            info!("the engine is told to stop");
            match orders.write_all(b"s") {
                // The engine has already ended; its result is in the other pipe.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written.context("cannot tell the engine to stop")?,
            }
        }
        let mut ready = [PollFd::new(results.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(CONTROL_INTERVAL_MS)) {
            Ok(0) | Err(Errno::EINTR) => continue,
            woken => woken.context("cannot wait for the engine")?,
        };
        let length = results.read(&mut chunk).context("cannot read from the engine")?;
        if length == 0 {
            return Err(HostError::EngineDied { how: supervisor.wait() }.into());
        }
        reader.push(&chunk[..length]);
        while let Some(message) =
            reader.next_message().context("cannot decode the engine's message")?
        {
            match message {
                Message::Progress { elapsed_ns } => {
                    elapsed = Some(Duration::from_nanos(elapsed_ns));
                }
                Message::Piece(piece) => sink.write(piece)?,
                Message::Done { at_ns, interrupted, program_status } => {
                    supervisor.wait();
                    return Ok(Ended {
                        at: Instant::from_nanos(at_ns),
                        interrupted,
                        program_status,
                    });
                }
                Message::Failed(error) => {
                    supervisor.wait();
                    return Err(error.into());
                }
            }
        }
    }
}

// --- in the supervisor's process ---

fn supervise(caller: Pid, ends: EngineEnds, experiment: &Experiment, options: &LiveOptions) -> ! {
    // A panic must not unwind into the forked copy of the caller's stack.
    let status = catch_unwind(AssertUnwindSafe(|| start_engine(caller, ends, experiment, options)));
    exit_now(status.unwrap_or(101))
}

fn start_engine(
    caller: Pid,
    ends: EngineEnds,
    experiment: &Experiment,
    options: &LiveOptions,
) -> i32 {
    let forked = isolate(caller, &ends).and_then(|()| {
        // SAFETY: this process has one thread, so that the child inherits a consistent state.
        unsafe { fork() }.context("cannot start the engine's process")
    });
    match forked {
        Ok(ForkResult::Child) => engine_main(ends, experiment, options),
        Ok(ForkResult::Parent { child }) => {
            debug!(pid = %child, "engine started in its own namespaces");
            // The engine must be the only owner of these descriptors, so that the caller reads
            // end-of-file when the engine dies.
            drop(ends);
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, status)) => status,
                Ok(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
                _ => 1,
            }
        }
        Err(error) => report(&ends.to_caller, Err(error)),
    }
}

fn isolate(caller: Pid, ends: &EngineEnds) -> Result<(), HostError> {
    reset_signals()?;
    die_with_parent(caller)?;
    close_all_except(&[ends.to_caller.as_raw_fd(), ends.from_caller.as_raw_fd()])?;
    enter_own_namespaces()?;
    // A change of credentials clears PR_SET_PDEATHSIG (prctl(2)).
    die_with_parent(caller)
}

// --- in the engine's process ---

fn engine_main(ends: EngineEnds, experiment: &Experiment, options: &LiveOptions) -> i32 {
    // The supervisor is outside of this PID namespace, where getppid() returns 0. If it has died already, the caller
    // closes its end of the order pipe, which ends the engine too.
    let ended = die_with_parent(Pid::from_raw(0)).and_then(|()| {
        mount_own_proc()?;
        let orders = engine::Orders::new(ends.from_caller);
        engine::run(experiment, options, &orders, &ends.to_caller)
    });
    report(&ends.to_caller, ended)
}

fn report(to_caller: &File, ended: Result<Ended, HostError>) -> i32 {
    let message = match ended {
        Ok(Ended { at, interrupted, program_status }) => {
            Message::Done { at_ns: at.as_nanos(), interrupted, program_status }
        }
        Err(error) => Message::Failed(error),
    };
    match message::send(to_caller, &message) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("skyhop: {error}");
            1
        }
    }
}
