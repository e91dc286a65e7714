//! The process that a run lives in: namespaces of its own, and a death that takes everything along.

use std::fs;
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::unistd::{Pid, getegid, geteuid, getppid};

use crate::error::{Context, HostError, namespaces_forbidden};

/// Makes this process die with its parent, also where the parent has died already.
pub fn die_with(parent: Pid) -> Result<(), HostError> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot tie the engine to its parent")?;
    if getppid() != parent {
        exit_now(1);
    }
    Ok(())
}

/// Ends this forked process without running anything that belongs to the caller's.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes any status, never returns and runs no exit handlers.
    unsafe { libc::_exit(status) }
}

/// How many descriptors a process may have.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorLimit {
    soft: u64,
    hard: u64,
}

impl DescriptorLimit {
    /// Takes as many as the system allows, for each flow needs a few, and returns what there was.
    pub fn raise() -> Result<Self, HostError> {
        let action = "cannot raise the limit of open files";
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context(action)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context(action)?;
        Ok(Self { soft, hard })
    }

    /// Gives this process what there was: programs may count on it.
    pub fn restore(self) -> Result<(), Errno> {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard)
    }
}

/// Forgets the caller's signal handlers and mask; what the terminal sends is the caller's to answer.
pub fn reset_signals() -> Result<(), HostError> {
    for each in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
        let handler = match each {
            // Sent to the whole group by terminals, supervisors and timeout(1); the caller decides.
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

/// Closes every descriptor of the caller but standard input and output and those in `kept`.
pub fn close_all_but(kept: &[RawFd]) -> Result<(), HostError> {
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
    // SAFETY: whatever owned these descriptors was left behind in the caller's process; this
    // process uses none of them and never runs the owners' destructors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    match Errno::result(result) {
        // Kernels before 5.9: the descriptors stay open until the run ends, which harms nothing here.
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(error) => Err(error).context("cannot close the caller's descriptors"),
    }
}

/// Leaves for namespaces of its own, where the next child becomes process 1.
///
/// A user namespace comes first where this process may not create the others otherwise.
pub fn enter_own_namespaces() -> Result<(), HostError> {
    let wanted = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    if geteuid().is_root() {
        match unshare(wanted) {
            Err(Errno::EPERM) => {}
            done => return done.map_err(namespaces_forbidden),
        }
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(wanted | CloneFlags::CLONE_NEWUSER).map_err(namespaces_forbidden)?;
    // A process that has changed its user is not dumpable, and then its files in /proc are root's.
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

/// Gives process 1 a /proc that shows its own processes; where that is refused the host's stays.
pub fn mount_own_proc() -> Result<(), HostError> {
    let none: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).context("cannot keep mounts from the host")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some("proc"), "/proc", Some("proc"), flags, none) {
        // Containers that mask parts of /proc refuse a new one.
        Ok(()) | Err(Errno::EPERM | Errno::EACCES) => Ok(()),
        Err(error) => Err(error).context("cannot mount /proc"),
    }
}
