//! Network namespaces that exist only as long as somebody holds them.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{During, HostError, namespaces_forbidden};

/// Socket buffers of both ends: minimum, default and maximum in bytes.
const TCP_BUFFER: &str = "4096 67108864 67108864";

/// A network namespace without a name.
#[derive(Debug)]
pub struct NetNamespace {
    handle: File,
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
            let handle = File::open("/proc/thread-self/ns/net")
                .during("cannot open /proc/thread-self/ns/net")?;
            Ok(Self { handle })
        })
    }

    /// Moves the calling thread, and what it starts from now on, into this namespace.
    pub fn enter(&self) -> Result<(), HostError> {
        setns(&self.handle, CloneFlags::CLONE_NEWNET).during("cannot enter a network namespace")
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

    /// Sets buffers and the like; returns a warning for each setting that was refused.
    pub fn tune(&self) -> Result<Vec<String>, HostError> {
        let settings = [
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "1"),
            ("net/ipv4/tcp_rmem", TCP_BUFFER),
            ("net/ipv4/tcp_wmem", TCP_BUFFER),
            ("net/ipv4/tcp_no_metrics_save", "1"),
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
