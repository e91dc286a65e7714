//! Connection of a namespace to this machine's network by slirp4netns, which runs in user space and carries the
//! namespace's traffic over its own sockets. The host's configuration does not change.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tracing::{debug, info};

use crate::error::{Context, HostError};
use crate::namespace::NetNamespace;
use crate::program;

const SLIRP: &str = "slirp4netns";
/// Name of slirp4netns' device in the namespace.
const DEVICE: &str = "tap0";
/// Address at which slirp4netns forwards DNS queries to this machine's resolver.
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// Longest time to wait until slirp4netns is ready.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Directory for a temporary mount: it exists on every machine, and at this time no program of the
/// run uses it yet.
const MOUNT_POINT: &str = "/tmp";
const POLL: Duration = Duration::from_millis(10);

/// Check that slirp4netns is installed, before anything is set up.
pub fn check() -> Result<(), HostError> {
    if program::is_installed(SLIRP) {
        return Ok(());
    }
    Err(HostError::Unsupported(format!(
        "--internet needs {SLIRP}, which is not in $PATH: install the package of that name"
    )))
}

/// Running slirp4netns process. The kernel ends it together with this process, which is PID 1 of
/// their PID namespace.
#[derive(Debug)]
pub struct Internet {
    /// Handle that keeps the pipe of slirp4netns' standard error open, so that slirp4netns can write to it.
    _slirp: Child,
}

/// Connect a namespace to this machine's network and enable forwarding in it.
///
/// # Errors
/// slirp4netns does not start, or is not ready in time.
pub fn join(namespace: &NetNamespace) -> Result<Internet, HostError> {
    let mut slirp = start(namespace)?;
    let begun = Instant::now();
    while !namespace.inside(has_default_route)? {
        let ended = slirp.try_wait().context(&format!("cannot wait for {SLIRP}"))?;
        if ended.is_some() || begun.elapsed() > START_TIMEOUT {
            let _ = slirp.kill();
            let stderr = slirp.wait_with_output().map(|done| done.stderr).unwrap_or_default();
            let stderr = String::from_utf8_lossy(&stderr);
            return Err(HostError::System {
                action: format!("cannot connect to this machine's network with {SLIRP}"),
                reason: stderr.lines().last().unwrap_or("it printed no error").to_owned(),
            });
        }
        thread::sleep(POLL);
    }
    namespace.inside(enable_forwarding)?;
    set_name_server()?;
    info!(pid = slirp.id(), "{SLIRP} connects the far end to this machine's network");
    Ok(Internet { _slirp: slirp })
}

fn start(namespace: &NetNamespace) -> Result<Child, HostError> {
    let action = format!("cannot start {SLIRP}");
    let handle = namespace.as_fd().as_raw_fd();
    let mut command = Command::new(SLIRP);
    command.args(["--configure", "--mtu=1500", "--disable-host-loopback", "--netns-type=path"]);
    command.arg(format!("/proc/self/fd/{handle}")).arg(DEVICE);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: a system call on a descriptor that stays open; allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let inherited = BorrowedFd::borrow_raw(handle);
            Ok(fcntl(inherited, FcntlArg::F_SETFD(FdFlag::empty())).map(|_| ())?)
        });
    }
    command.spawn().context(&action)
}

/// Whether the calling thread's namespace has a default route over slirp4netns' device: proc(5), net/route.
fn has_default_route() -> Result<bool, HostError> {
    let routes =
        fs::read_to_string("/proc/thread-self/net/route").context("cannot read the routes")?;
    let is_default = |line: &str| {
        let mut fields = line.split_whitespace();
        fields.next() == Some(DEVICE) && fields.next() == Some("00000000")
    };
    Ok(routes.lines().any(is_default))
}

/// Enable forwarding for the namespace of the other end, and proxy ARP for that namespace's
/// addresses, which slirp4netns resolves by ARP.
fn enable_forwarding() -> Result<(), HostError> {
    let answers = format!("/proc/sys/net/ipv4/conf/{DEVICE}/proxy_arp");
    for setting in ["/proc/sys/net/ipv4/ip_forward", &answers] {
        fs::write(setting, "1").context(&format!("cannot set {setting}"))?;
    }
    Ok(())
}

/// Replace /etc/resolv.conf, in this process's mount namespace only, so that programs use slirp4netns' DNS.
fn set_name_server() -> Result<(), HostError> {
    let action = "cannot set the programs' name server";
    let used =
        fs::canonicalize("/etc/resolv.conf").unwrap_or_else(|_| PathBuf::from("/etc/resolv.conf"));
    debug!(file = %used.display(), server = %NAME_SERVER, "name server of programs");
    if !used.is_file() {
        return Ok(());
    }
    let none: Option<&str> = None;
    // The file lives in a temporary tmpfs: its bind mount over resolv.conf outlives the detached mount point.
    mount(Some("tmpfs"), MOUNT_POINT, Some("tmpfs"), MsFlags::empty(), none).context(action)?;
    let ours = Path::new(MOUNT_POINT).join("resolv.conf");
    let mounted = fs::write(&ours, format!("nameserver {NAME_SERVER}\n"))
        .context(action)
        .and_then(|()| mount(Some(&ours), &used, none, MsFlags::MS_BIND, none).context(action));
    umount2(MOUNT_POINT, MntFlags::MNT_DETACH).context(action)?;
    mounted
}
