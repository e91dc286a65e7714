//! Estimation of the handover grid from the packets that arrive at a network interface.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};
use skyhop_signal::blind::{ESTIMATE_EVERY, Estimate, MIN_MOMENTS, Period, WINDOW};
use skyhop_signal::capture::Conversations;
use skyhop_units::{Duration, UtcInstant};
use std::io::IoSliceMut;

use skyhop_host::error::{Context, HostError};

/// Bytes read of each packet: enough for the headers that identify a flow, IPv6 with extensions and TCP with options.
const HEADER_BYTES: usize = 192;
/// Receive timeout, after which the thread checks for commands while no packet arrives.
const RECEIVE_TIMEOUT: TimeVal = TimeVal::new(0, 200_000);

/// Estimate of the grid from the interface's arrivals.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observation {
    /// Name of the flow from which the estimate was made, such as "TCP 192.0.2.1:443 > 192.0.2.7:51000".
    pub(crate) conversation: String,
    pub(crate) estimate: Estimate,
}

/// Handle of the watcher's thread, which receives and estimates, so that estimates do not delay announcements.
pub(crate) struct Watcher {
    estimates: Receiver<Observation>,
    commands: Arc<Commands>,
    thread: Option<JoinHandle<Result<(), HostError>>>,
}

/// Commands to the watcher's thread.
#[derive(Debug, Default)]
struct Commands {
    stop: AtomicBool,
    /// Command to forget all arrivals: UTC was set, and their times are of the clock before that.
    reset: AtomicBool,
}

impl Watcher {
    /// Start to watch an interface of this network namespace for a handover grid with the period `period`.
    pub(crate) fn start(interface: &str, period: Duration) -> Result<Self, HostError> {
        let socket = open(interface)?;
        let (sender, estimates) = mpsc::channel();
        let commands = Arc::new(Commands::default());
        let watch = WatcherThread {
            socket,
            period,
            commands: Arc::clone(&commands),
            estimates: sender,
            conversations: Conversations::default(),
            next_estimate: None,
        };
        let thread = thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || watch.run())
            .context("cannot start a thread")?;
        Ok(Self { estimates, commands, thread: Some(thread) })
    }

    /// Return the latest estimate; `None` if an earlier call has returned it.
    pub(crate) fn latest(&mut self) -> Result<Option<Observation>, HostError> {
        let latest = self.estimates.try_iter().last();
        match self.thread.take_if(|thread| thread.is_finished()) {
            Some(ended) => join(ended).map(|()| latest),
            None => Ok(latest),
        }
    }

    /// Make the thread forget all arrivals, because UTC was set.
    pub(crate) fn reset(&self) {
        self.commands.reset.store(true, Ordering::Release);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.commands.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // An error at the end does not change the service's result.
            join(thread).unwrap_or_default();
        }
    }
}

fn join(thread: JoinHandle<Result<(), HostError>>) -> Result<(), HostError> {
    thread.join().unwrap_or_else(|_| Err("a thread panicked").context("cannot watch"))
}

// --- on the watcher's thread ---

struct WatcherThread {
    socket: OwnedFd,
    period: Duration,
    commands: Arc<Commands>,
    estimates: Sender<Observation>,
    conversations: Conversations,
    /// Time of the next estimate, by the packets' timestamps.
    next_estimate: Option<UtcInstant>,
}

impl WatcherThread {
    fn run(mut self) -> Result<(), HostError> {
        let mut headers = [0; HEADER_BYTES];
        while !self.commands.stop.load(Ordering::Acquire) {
            let arrived = receive(&self.socket, &mut headers)?;
            if self.commands.reset.swap(false, Ordering::AcqRel) {
                self.conversations = Conversations::default();
                self.next_estimate = None;
            }
            if let Some((at, length)) = arrived {
                self.conversations.arrived(at, &headers[..length]);
                self.estimate_if_due(at);
            }
        }
        Ok(())
    }

    fn estimate_if_due(&mut self, now: UtcInstant) {
        let first = self.period * (MIN_MOMENTS + 1) as u64;
        let due = *self.next_estimate.get_or_insert(now.after(first));
        if now < due {
            return;
        }
        self.next_estimate = Some(now.after(ESTIMATE_EVERY));
        let oldest = now.unix_nanos() - WINDOW.as_nanos() as i64;
        self.conversations.forget(UtcInstant::from_unix_nanos(oldest));
        if let Some((conversation, estimate)) =
            self.conversations.estimate(Period::Known(self.period))
        {
            // The channel is closed only after `stop` is set, which ends the loop.
            self.estimates.send(Observation { conversation, estimate }).unwrap_or_default();
        }
    }
}

/// Open a packet socket that receives every packet of the interface from the IP header on, with the kernel's
/// timestamps.
fn open(interface: &str) -> Result<OwnedFd, HostError> {
    let index = if_nametoindex(interface).map_err(|error| {
        HostError::Unsupported(format!(
            "--interface {interface}: {}; `ip link` lists the interfaces",
            error.desc()
        ))
    })?;
    let flags = SockFlag::SOCK_CLOEXEC;
    // Protocol 0 receives nothing until `bind` sets the interface and the protocol.
    let socket = match socket(
        AddressFamily::Packet,
        SockType::Datagram,
        flags,
        None::<SockProtocol>,
    ) {
        Err(Errno::EPERM | Errno::EACCES) => {
            return Err(HostError::Unsupported(format!(
                "--interface {interface}: only root (CAP_NET_RAW) may watch an interface; give a log \
                 or capture with --file instead"
            )));
        }
        opened => opened.context("cannot open a packet socket")?,
    };
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)
        .context("cannot enable packet timestamps")?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &RECEIVE_TIMEOUT)
        .context("cannot set up the packet socket")?;
    bind(&socket, index).context(&format!("cannot watch {interface}"))?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, index: u32) -> nix::Result<()> {
    // SAFETY: all fields of the struct are numbers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` lives for the call, and `length` is its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    Errno::result(bound).map(drop)
}

/// Receive a packet; return its arrival time and the number of bytes read. `None` if the packet is an outgoing one, or
/// if none arrives within [`RECEIVE_TIMEOUT`].
fn receive(
    socket: &OwnedFd,
    headers: &mut [u8; HEADER_BYTES],
) -> Result<Option<(UtcInstant, usize)>, HostError> {
    let mut control = cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(headers)];
    let received =
        recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty());
    let message = match received {
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
        // The interface is down and may come up again.
        Err(Errno::ENETDOWN) => return Ok(None),
        received => received.context("cannot receive packets")?,
    };
    if message.address.is_some_and(|address| address.pkttype() == libc::PACKET_OUTGOING) {
        return Ok(None);
    }
    let stamp = message.cmsgs().context("cannot read a packet's time")?.find_map(|one| match one {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
        _ => None,
    });
    let at = |stamp: TimeSpec| UtcInstant::from_unix_nanos(stamp.num_nanoseconds());
    Ok(stamp.map(|stamp| (at(stamp), message.bytes)))
}
