//! Isolation of a run's process: it has its own namespaces, and all its children end with it.

use std::fs;
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::unistd::{Pid, getegid, geteuid, getppid};
use tracing::{debug, info};

use crate::error::{Context, HostError, namespaces_forbidden};

/// Make this process die with its parent (PR_SET_PDEATHSIG); exit if the parent has already died.
pub fn die_with_parent(parent: Pid) -> Result<(), HostError> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot tie the engine to its parent")?;
    if getppid() != parent {
        exit_now(1);
    }
    Ok(())
}

/// Exit this forked process without running exit handlers of the caller's copy.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes any status, never returns and runs no exit handlers.
    unsafe { libc::_exit(status) }
}

/// Limit of open descriptors (RLIMIT_NOFILE) before it was raised.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorLimit {
    soft: u64,
    hard: u64,
}

impl DescriptorLimit {
    /// Raise the soft limit to the hard limit, because each flow needs a few descriptors; return the old limit.
    pub fn raise() -> Result<Self, HostError> {
        let action = "cannot raise the limit of open files";
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context(action)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context(action)?;
        Ok(Self { soft, hard })
    }

    /// Restore the old limit, for programs that depend on it.
    pub fn restore(self) -> Result<(), Errno> {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard)
    }
}

/// Reset the caller's signal handlers and mask. Signals of the terminal are ignored, because the caller handles them.
pub fn reset_signals() -> Result<(), HostError> {
    for each in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
        let handler = match each {
            // Terminals, supervisors and timeout(1) send these to the whole process group; the caller decides.
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM | Signal::SIGHUP => {
                SigHandler::SigIgn
            }
            Signal::SIGPIPE => SigHandler::SigIgn,
            _ => SigHandler::SigDfl,
        };
        // SAFETY: no handler is a function, so nothing runs in signal context.
        unsafe { signal(each, handler) }.context("cannot reset a signal handler")?;
    }
    SigSet::empty().thread_set_mask().context("cannot reset the signal mask")
}

/// Close every descriptor of the caller except standard input, output and error and those in `kept`.
pub fn close_all_except(kept: &[RawFd]) -> Result<(), HostError> {
    let mut kept: Vec<u32> = kept.iter().map(|fd| *fd as u32).collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), HostError> {
    // SAFETY: the owners of these descriptors live in the caller's process; this process uses none of them and never
    // runs the owners' destructors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    match Errno::result(result) {
        // Kernels before 5.9 lack close_range: the descriptors stay open until the run ends, which is harmless.
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(error) => Err(error).context("cannot close the caller's descriptors"),
    }
}

/// Enter new mount and PID namespaces; the next child of this process becomes PID 1.
///
/// A user namespace is created too if this process may not create the other namespaces without one.
pub fn enter_own_namespaces() -> Result<(), HostError> {
    let wanted = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    if geteuid().is_root() {
        match unshare(wanted) {
            Err(Errno::EPERM) => {}
            done => return done.map_err(namespaces_forbidden),
        }
    }
    let (uid, gid) = (geteuid(), getegid());
    debug!(%uid, %gid, "a user namespace is needed to create the other namespaces");
    unshare(wanted | CloneFlags::CLONE_NEWUSER).map_err(namespaces_forbidden)?;
    // A process that has changed its user is not dumpable, and its files in /proc then belong to root.
    prctl::set_dumpable(true).context("cannot open /proc/self to this process")?;
    write_map("setgroups", "deny")?;
    write_map("gid_map", &format!("0 {gid} 1"))?;
    write_map("uid_map", &format!("0 {uid} 1"))
}

fn write_map(name: &str, text: &str) -> Result<(), HostError> {
    fs::write(format!("/proc/self/{name}"), text).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => namespaces_forbidden(Errno::EPERM),
        _ => HostError::System {
            action: format!("cannot write /proc/self/{name}"),
            reason: error.to_string(),
        },
    })
}

/// Mount a /proc for the PID namespace; keep the host's /proc if the system refuses.
pub fn mount_own_proc() -> Result<(), HostError> {
    let none: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).context("cannot keep mounts from the host")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some("proc"), "/proc", Some("proc"), flags, none) {
        // Containers that mask parts of /proc refuse a new one.
        Err(error @ (Errno::EPERM | Errno::EACCES)) => {
            info!(%error, "the system refuses a /proc of the run; the host's stays");
            Ok(())
        }
        mounted => mounted.context("cannot mount /proc"),
    }
}
