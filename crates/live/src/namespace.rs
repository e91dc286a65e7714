//! Network namespaces that exist only as long as somebody holds them.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{During, LiveError, namespaces_forbidden};

/// Socket buffers of both ends: minimum, default and maximum in bytes.
const TCP_BUFFER: &str = "4096 67108864 67108864";

/// A network namespace without a name.
#[derive(Debug)]
pub(crate) struct NetNamespace {
    handle: File,
}

impl NetNamespace {
    /// A new, empty one; the calling thread stays where it is.
    pub(crate) fn create() -> Result<Self, LiveError> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
                Errno::EPERM | Errno::ENOSPC | Errno::EUSERS => namespaces_forbidden(errno),
                _ => LiveError::System {
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
    pub(crate) fn enter(&self) -> Result<(), LiveError> {
        setns(&self.handle, CloneFlags::CLONE_NEWNET).during("cannot enter a network namespace")
    }

    /// Does something inside while the calling thread stays where it is.
    pub(crate) fn inside<T: Send, E: From<LiveError> + Send>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        on_own_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Sets buffers and the like; returns a warning for each setting that was refused.
    pub(crate) fn tune(&self) -> Result<Vec<String>, LiveError> {
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

fn on_own_thread<T: Send, E: From<LiveError> + Send>(
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| {
        let panicked = LiveError::System {
            action: "cannot set up a network namespace".to_owned(),
            reason: "a thread of the engine panicked".to_owned(),
        };
        Err(panicked.into())
    })
}
