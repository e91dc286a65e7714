//! A way from a namespace into the net that this machine is in, which stays as it is: slirp4netns translates, in
//! user space, what comes out of the namespace into connections of its own.

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

use crate::error::{Context, HostError};
use crate::namespace::NetNamespace;
use crate::program;

const TRANSLATOR: &str = "slirp4netns";
/// Its device in the namespace.
const DEVICE: &str = "tap0";
/// Where it answers DNS, as this machine would.
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// How long it may take to get ready.
const PATIENCE: Duration = Duration::from_secs(5);
/// A directory that every machine has, and that nobody needs before programs start.
const MOMENTARY: &str = "/tmp";
const POLL: Duration = Duration::from_millis(10);

/// Whether there is what it needs, found out before anything is set up.
pub fn check() -> Result<(), HostError> {
    if program::is_there(TRANSLATOR) {
        return Ok(());
    }
    Err(HostError::Unsupported(format!(
        "--internet needs {TRANSLATOR}, which is not in $PATH: install the package of that name"
    )))
}

/// The translator at work. It ends with this process, which is the first of its PID namespace.
#[derive(Debug)]
pub struct Internet {
    /// Held, so that it may go on writing what goes wrong.
    _translator: Child,
}

/// Joins a namespace to this machine's net, and lets it pass on what others send.
///
/// # Errors
/// The translator does not start.
pub fn join(namespace: &NetNamespace) -> Result<Internet, HostError> {
    let mut translator = start(namespace)?;
    let begun = Instant::now();
    while !namespace.inside(has_way_out)? {
        let ended = translator.try_wait().context(&format!("cannot wait for {TRANSLATOR}"))?;
        if ended.is_some() || begun.elapsed() > PATIENCE {
            let _ = translator.kill();
            let said = translator.wait_with_output().map(|done| done.stderr).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            return Err(HostError::System {
                action: format!("cannot reach this machine's net with {TRANSLATOR}"),
                reason: said.lines().last().unwrap_or("it says nothing").to_owned(),
            });
        }
        thread::sleep(POLL);
    }
    namespace.inside(pass_on)?;
    name_server()?;
    Ok(Internet { _translator: translator })
}

fn start(namespace: &NetNamespace) -> Result<Child, HostError> {
    let action = format!("cannot start {TRANSLATOR}");
    let handle = namespace.as_fd().as_raw_fd();
    let mut command = Command::new(TRANSLATOR);
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

/// Whether the calling thread's namespace has a default route over the translator's device: proc(5), net/route.
fn has_way_out() -> Result<bool, HostError> {
    let routes =
        fs::read_to_string("/proc/thread-self/net/route").context("cannot read the routes")?;
    let is_default = |line: &str| {
        let mut fields = line.split_whitespace();
        fields.next() == Some(DEVICE) && fields.next() == Some("00000000")
    };
    Ok(routes.lines().any(is_default))
}

/// Passes on packets of the other namespace, and answers for its addresses: the translator asks by ARP.
fn pass_on() -> Result<(), HostError> {
    let answers = format!("/proc/sys/net/ipv4/conf/{DEVICE}/proxy_arp");
    for setting in ["/proc/sys/net/ipv4/ip_forward", &answers] {
        fs::write(setting, "1").context(&format!("cannot set {setting}"))?;
    }
    Ok(())
}

/// Lets programs ask the translator for names, in this process's mount namespace alone.
fn name_server() -> Result<(), HostError> {
    let action = "cannot give programs a name server";
    let used =
        fs::canonicalize("/etc/resolv.conf").unwrap_or_else(|_| PathBuf::from("/etc/resolv.conf"));
    if !used.is_file() {
        return Ok(());
    }
    let none: Option<&str> = None;
    // A file system for as long as it takes: a file of it, laid over the machine's own, outlives its own place.
    mount(Some("tmpfs"), MOMENTARY, Some("tmpfs"), MsFlags::empty(), none).context(action)?;
    let ours = Path::new(MOMENTARY).join("resolv.conf");
    let laid_over = fs::write(&ours, format!("nameserver {NAME_SERVER}\n"))
        .context(action)
        .and_then(|()| mount(Some(&ours), &used, none, MsFlags::MS_BIND, none).context(action));
    umount2(MOMENTARY, MntFlags::MNT_DETACH).context(action)?;
    laid_over
}
