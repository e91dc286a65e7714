//! Learns the handover grid from what arrives at a network interface.

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
use skyhop_signal::blind::{ESTIMATE_EVERY, Estimate, FEWEST_MOMENTS, Period, WINDOW};
use skyhop_signal::capture::Conversations;
use skyhop_units::{Duration, UtcInstant};
use std::io::IoSliceMut;

use skyhop_host::error::{Context, HostError};

/// Enough for the headers that name a conversation: IPv6 with extensions, TCP with options.
const HEADERS: usize = 192;
/// How often the caller's wishes are looked at while nothing arrives.
const LOOK: TimeVal = TimeVal::new(0, 200_000);

/// What the interface's arrivals say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observation {
    /// The conversation that says it.
    pub(crate) conversation: String,
    pub(crate) estimate: Estimate,
}

/// Watches on a thread of its own, which also estimates, so that announcements are not kept waiting.
pub(crate) struct Watcher {
    observed: Receiver<Observation>,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<Result<(), HostError>>>,
}

#[derive(Debug, Default)]
struct Orders {
    stop: AtomicBool,
    /// UTC was set: what was seen so far is on another clock.
    begin_anew: AtomicBool,
}

impl Watcher {
    /// Begins to watch an interface of this network namespace for a grid of `period`.
    pub(crate) fn start(interface: &str, period: Duration) -> Result<Self, HostError> {
        let socket = open(interface)?;
        let (sender, observed) = mpsc::channel();
        let orders = Arc::new(Orders::default());
        let watch = Watch {
            socket,
            period,
            orders: Arc::clone(&orders),
            observed: sender,
            conversations: Conversations::default(),
            next_estimate: None,
        };
        let thread = thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || watch.run())
            .context("cannot start a thread")?;
        Ok(Self { observed, orders, thread: Some(thread) })
    }

    /// The latest estimate, where there is one that was not taken yet.
    pub(crate) fn observed(&mut self) -> Result<Option<Observation>, HostError> {
        let latest = self.observed.try_iter().last();
        match self.thread.take_if(|thread| thread.is_finished()) {
            Some(ended) => join(ended).map(|()| latest),
            None => Ok(latest),
        }
    }

    /// Forgets what was seen before UTC was set.
    pub(crate) fn begin_anew(&self) {
        self.orders.begin_anew.store(true, Ordering::Release);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The service's result is what counts.
            join(thread).unwrap_or_default();
        }
    }
}

fn join(thread: JoinHandle<Result<(), HostError>>) -> Result<(), HostError> {
    thread.join().unwrap_or_else(|_| Err("a thread panicked").context("cannot watch"))
}

// --- on the watcher's thread ---

struct Watch {
    socket: OwnedFd,
    period: Duration,
    orders: Arc<Orders>,
    observed: Sender<Observation>,
    conversations: Conversations,
    /// By the packets' own clock.
    next_estimate: Option<UtcInstant>,
}

impl Watch {
    fn run(mut self) -> Result<(), HostError> {
        let mut headers = [0; HEADERS];
        while !self.orders.stop.load(Ordering::Acquire) {
            let arrived = receive(&self.socket, &mut headers)?;
            if self.orders.begin_anew.swap(false, Ordering::AcqRel) {
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
        let first = self.period * (FEWEST_MOMENTS + 1) as u64;
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
            // If nobody listens any more, the next look at the orders says so too.
            self.observed.send(Observation { conversation, estimate }).unwrap_or_default();
        }
    }
}

/// A socket that gets every packet of the interface, from its IP header on, with the kernel's time of it.
fn open(interface: &str) -> Result<OwnedFd, HostError> {
    let index = if_nametoindex(interface).map_err(|error| {
        HostError::Unsupported(format!(
            "--interface {interface}: {}; `ip link` lists the interfaces",
            error.desc()
        ))
    })?;
    let flags = SockFlag::SOCK_CLOEXEC;
    // Bound to the interface below; nothing is received before that.
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
        .context("cannot have packets stamped")?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &LOOK).context("cannot set up a packet socket")?;
    bind(&socket, index).context(&format!("cannot watch {interface}"))?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, index: u32) -> nix::Result<()> {
    // SAFETY: all of its fields are numbers, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` lives for the call, and `length` is its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    Errno::result(bound).map(drop)
}

/// The next packet: when it arrived, and how many bytes of it there are; `None` for one that was sent, and
/// where none has come.
fn receive(
    socket: &OwnedFd,
    headers: &mut [u8; HEADERS],
) -> Result<Option<(UtcInstant, usize)>, HostError> {
    let mut control = cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(headers)];
    let received =
        recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty());
    let message = match received {
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
        // The interface is down; it may come back.
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
