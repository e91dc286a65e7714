//! Network namespaces that exist only as long as somebody holds them.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Context, HostError, namespaces_forbidden};

/// Socket buffers of both ends: minimum, default and maximum in bytes.
const TCP_BUFFER: &str = "4096 67108864 67108864";
/// Whether connections ask for ECN where they begin; all accept it.
const TCP_ECN: &str = "net/ipv4/tcp_ecn";
const ECN_ASKED_FOR: &str = "1";
const ECN_ACCEPTED: &str = "2";

/// A network namespace without a name.
#[derive(Debug)]
pub struct NetNamespace {
    handle: File,
    /// Held by who connects: [`Self::connecting`].
    asks_for_ecn: Mutex<bool>,
}

impl NetNamespace {
    /// A new, empty one; the calling thread stays where it is.
    pub fn create() -> Result<Self, HostError> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
                Errno::EPERM | Errno::ENOSPC | Errno::EUSERS => namespaces_forbidden(errno),
                _ => HostError::System {
                    action: "cannot create a network namespace".to_owned(),
                    reason: errno.desc().to_owned(),
                },
            })?;
            Self::open(Path::new("/proc/thread-self/ns/net"))
        })
    }

    /// One that is there, by its handle: `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let handle = File::open(path)
            .context(&format!("cannot open the network namespace {}", path.display()))?;
        Ok(Self { handle, asks_for_ecn: Mutex::new(false) })
    }

    /// Moves the calling thread, and what it starts from now on, into this namespace.
    pub fn enter(&self) -> Result<(), HostError> {
        setns(&self.handle, CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
    }

    /// Does something inside while the calling thread stays where it is.
    pub fn inside<T: Send, E: From<HostError> + Send>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        on_own_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Does `connect`, which sends a SYN, with or without asking for ECN. The calling thread has
    /// entered the namespace; Linux has no such choice for a socket, so one connects after the other.
    ///
    /// # Errors
    /// The namespace does not let itself be told.
    pub fn connecting<T>(&self, ecn: bool, connect: impl FnOnce() -> T) -> Result<T, HostError> {
        let mut asks = self.asks_for_ecn.lock().unwrap_or_else(PoisonError::into_inner);
        if *asks != ecn {
            let value = if ecn { ECN_ASKED_FOR } else { ECN_ACCEPTED };
            fs::write(format!("/proc/sys/{TCP_ECN}"), value).context("cannot ask for ECN")?;
            *asks = ecn;
        }
        Ok(connect())
    }

    /// Sets buffers and the like; returns a warning for each setting that was refused.
    pub fn tune(&self) -> Result<Vec<String>, HostError> {
        let settings = [
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "1"),
            ("net/ipv4/tcp_rmem", TCP_BUFFER),
            ("net/ipv4/tcp_wmem", TCP_BUFFER),
            ("net/ipv4/tcp_no_metrics_save", "1"),
            (TCP_ECN, ECN_ACCEPTED),
        ];
        self.inside(|| {
            Ok(settings.into_iter().filter_map(|(name, value)| set(name, value)).collect())
        })
    }
}

/// Sets a sysctl of the calling thread's namespace.
fn set(name: &str, value: &str) -> Option<String> {
    let file = format!("/proc/sys/{name}");
    // A kernel without IPv6 needs nothing disabled.
    if name.starts_with("net/ipv6/") && !fs::exists(&file).unwrap_or(false) {
        return None;
    }
    let error = fs::write(&file, value).err()?;
    Some(format!(
        "{} could not be set to {value} in the namespaces: {error}",
        name.replace('/', ".")
    ))
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn on_own_thread<T: Send, E: From<HostError> + Send>(
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| {
        let panicked = HostError::System {
            action: "cannot set up a network namespace".to_owned(),
            reason: "a thread of the engine panicked".to_owned(),
        };
        Err(panicked.into())
    })
}
