//! Network namespaces that exist only as long as somebody holds them.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use skyhop_model::BufferSizes;

use crate::error::{Context, HostError, namespaces_forbidden};

/// The least that a socket's buffer may be cut to, in bytes.
const LEAST_BUFFER: u64 = 4096;
/// Whether connections ask for ECN where they begin; all accept it.
const TCP_ECN: &str = "net/ipv4/tcp_ecn";
const ECN_ASKED_FOR: &str = "1";
const ECN_ACCEPTED: &str = "2";

/// What a namespace's TCP is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSettings {
    /// sysctl tcp_rmem.
    pub rmem: BufferSizes,
    /// sysctl tcp_wmem.
    pub wmem: BufferSizes,
    /// sysctl tcp_timestamps.
    pub timestamps: bool,
    /// sysctl tcp_sack.
    pub sack: bool,
    /// Whether programs inside ask for ECN: sysctl tcp_ecn.
    pub ecn: bool,
}

impl Default for TcpSettings {
    fn default() -> Self {
        let (rmem, wmem) = (BufferSizes::RMEM, BufferSizes::WMEM);
        Self { rmem, wmem, timestamps: true, sack: true, ecn: false }
    }
}

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
            fs::write(format!("/proc/sys/{TCP_ECN}"), ecn_value(ecn))
                .context("cannot ask for ECN")?;
            *asks = ecn;
        }
        Ok(connect())
    }

    /// Sets buffers and the like; returns a warning for each setting that was refused.
    pub fn tune(&self, tcp: &TcpSettings) -> Result<Vec<String>, HostError> {
        let sizes = |BufferSizes { initial, max }: BufferSizes| {
            format!("{LEAST_BUFFER} {} {}", initial.as_u64(), max.as_u64())
        };
        let (rmem, wmem) = (sizes(tcp.rmem), sizes(tcp.wmem));
        let switch = |on: bool| if on { "1" } else { "0" };
        let settings = [
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "1"),
            ("net/ipv4/tcp_rmem", &rmem),
            ("net/ipv4/tcp_wmem", &wmem),
            ("net/ipv4/tcp_timestamps", switch(tcp.timestamps)),
            ("net/ipv4/tcp_sack", switch(tcp.sack)),
            ("net/ipv4/tcp_no_metrics_save", "1"),
            (TCP_ECN, ecn_value(tcp.ecn)),
        ];
        *self.asks_for_ecn.lock().unwrap_or_else(PoisonError::into_inner) = tcp.ecn;
        self.inside(|| {
            Ok(settings.into_iter().filter_map(|(name, value)| set(name, value)).collect())
        })
    }
}

fn ecn_value(asked_for: bool) -> &'static str {
    if asked_for { ECN_ASKED_FOR } else { ECN_ACCEPTED }
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
