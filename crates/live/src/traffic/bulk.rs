//! Bulk TCP flows: a sender that always has more to send, and a receiver that discards it.

use skyhop_model::End;
use std::io::ErrorKind;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{self, MsgFlags, Shutdown, SockaddrIn, sockopt};
use skyhop_units::{Bytes, Duration, Instant};

use super::{Addresses, Stage};
use skyhop_host::clock::{Stop, sleep_until, wait, wake_precisely};
use skyhop_host::error::{During, HostError};
use skyhop_host::frame::FIRST_PORT;
use skyhop_host::socket::{open, set_int};
use skyhop_host::tcp_info::{TcpInfo, tcp_info};
use skyhop_host::thread::{Worker, join, spawn};

/// What the sender writes at once.
const CHUNK: usize = 256 * 1024;
/// What the receiver discards at once.
const DISCARD: usize = 4 << 20;
/// How much has to arrive until the receiver wakes: a wake-up for each packet takes a quarter of
/// what two cores can carry.
const WAKE_AT: libc::c_int = 64 * 1024;
/// How long the receiver waits for data before it looks whether the run is over.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);
/// How long a sender whose connection failed waits before it tries again.
const RETRY: Duration = Duration::from_millis(100);

/// One flow.
#[derive(Debug, Clone)]
pub(crate) struct BulkPlan {
    pub(crate) id: u32,
    /// Its place among all of the run's own traffic, which gives it its port.
    pub(crate) index: usize,
    pub(crate) from: End,
    pub(crate) start: Instant,
    pub(crate) stop: Instant,
    /// As the scenario calls it.
    pub(crate) cc: String,
    /// As the kernel calls it.
    pub(crate) kernel_cc: String,
    pub(crate) bytes: Option<Bytes>,
    /// Whether it asks for ECN.
    pub(crate) ecn: bool,
    pub(crate) addresses: Addresses,
}

/// What others may look at while a flow runs.
#[derive(Debug)]
pub(crate) struct BulkView {
    sender: Mutex<Option<Arc<OwnedFd>>>,
    receiver: Mutex<Option<Arc<OwnedFd>>>,
    listener: TcpListener,
    /// When the last byte of a finite transfer had arrived.
    completed: OnceLock<Instant>,
    completion: Stop,
    end: OnceLock<BulkEnd>,
}

/// A flow at its end.
#[derive(Debug, Clone)]
pub(crate) struct BulkEnd {
    pub(crate) at: Instant,
    pub(crate) last: BulkSample,
    pub(crate) completed: Option<Instant>,
    /// Why it ended before its time.
    pub(crate) broken: Option<String>,
}

impl BulkEnd {
    /// What to know of a flow that ended before its time.
    pub(crate) fn warning(&self, id: u32) -> Option<String> {
        let reason = self.broken.as_ref()?;
        Some(format!(
            "flow {id} ended at {:.1} s, before its time: {reason}",
            self.at.as_secs_f64()
        ))
    }
}

/// Both ends of a flow at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BulkSample {
    /// The sender's side.
    pub(crate) sender: TcpInfo,
    /// Payload that has reached the receiver in order.
    pub(crate) received_bytes: u64,
}

impl BulkView {
    /// How the flow ended, once it has.
    pub(crate) fn end(&self) -> Option<&BulkEnd> {
        self.end.get()
    }

    /// The flow now; `None` while it has no socket.
    pub(crate) fn sample(&self) -> Result<Option<BulkSample>, HostError> {
        let Some(sender) = held(&self.sender) else { return Ok(None) };
        let sender = tcp_info(&*sender)?;
        let receiver = held(&self.receiver).map(|socket| tcp_info(&*socket)).transpose()?;
        let received_bytes = receiver.map_or(0, |receiver| receiver.bytes_received);
        Ok(Some(BulkSample { sender, received_bytes }))
    }
}

fn held(socket: &Mutex<Option<Arc<OwnedFd>>>) -> Option<Arc<OwnedFd>> {
    socket.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn hold(place: &Mutex<Option<Arc<OwnedFd>>>, socket: Option<Arc<OwnedFd>>) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = socket;
}

/// A flow at work.
pub(crate) struct RunningBulk {
    pub(crate) plan: BulkPlan,
    pub(crate) view: Arc<BulkView>,
    sender: Worker<()>,
    receiver: Worker<()>,
}

impl RunningBulk {
    pub(crate) fn start(plan: BulkPlan, stage: &Stage) -> Result<Self, HostError> {
        let port = FIRST_PORT + plan.index as u16;
        let far = SocketAddrV4::new(plan.addresses.of(plan.from.other()), port);
        let listener = stage.namespace(plan.from.other()).inside(|| {
            let listener =
                TcpListener::bind(far).during("cannot bind a flow's listening socket")?;
            listener.set_nonblocking(true).during("cannot set up a flow's listening socket")?;
            Ok(listener)
        })?;
        let view = Arc::new(BulkView {
            sender: Mutex::default(),
            receiver: Mutex::default(),
            listener,
            completed: OnceLock::new(),
            completion: Stop::new()?,
            end: OnceLock::new(),
        });
        let receiver = spawn(format!("sink-{}", plan.id), {
            let (plan, view, stage) = (plan.clone(), Arc::clone(&view), stage.clone());
            move || receive(&plan, &view, &stage)
        })?;
        let sender = spawn(format!("send-{}", plan.id), {
            let (plan, view, stage) = (plan.clone(), Arc::clone(&view), stage.clone());
            move || Sender { plan, view, stage }.run(far)
        })?;
        Ok(Self { plan, view, sender, receiver })
    }

    /// Whether nothing more will be sent.
    pub(crate) fn sender_has_ended(&self) -> bool {
        self.sender.is_finished()
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<(BulkPlan, Option<BulkEnd>), HostError> {
        join(self.sender)?;
        join(self.receiver)?;
        Ok((self.plan, self.view.end.get().cloned()))
    }
}

// --- the sender ---

struct Sender {
    plan: BulkPlan,
    view: Arc<BulkView>,
    stage: Stage,
}

impl Sender {
    fn run(self, far: SocketAddrV4) -> Result<(), HostError> {
        self.stage.namespace(self.plan.from).enter()?;
        wake_precisely()?;
        if !sleep_until(self.stage.clock, self.plan.start, &self.stage.stop)? {
            return Ok(());
        }
        let broken = match self.connect(far)? {
            Some(socket) => self.send(&socket)?,
            None => None,
        };
        self.finish(broken)
    }

    fn is_over(&self) -> bool {
        self.stage.stop.is_set() || self.stage.clock.now() >= self.plan.stop
    }

    /// Tries until there is a connection; `None` when the flow's time is over before.
    fn connect(&self, far: SocketAddrV4) -> Result<Option<Arc<OwnedFd>>, HostError> {
        while !self.is_over() {
            let socket = Arc::new(open(&self.plan.kernel_cc)?);
            // Held from here on, so that a handshake in an outage shows in the samples.
            hold(&self.view.sender, Some(Arc::clone(&socket)));
            let namespace = self.stage.namespace(self.plan.from);
            let begun = namespace.connecting(self.plan.ecn, || {
                socket::connect(socket.as_raw_fd(), &SockaddrIn::from(far))
            })?;
            match begun {
                Ok(()) | Err(Errno::EINPROGRESS) => {}
                Err(error) => return Err(error).during("cannot connect a flow"),
            }
            self.until_writable(&socket)?;
            if self.is_over() {
                return Ok(None);
            }
            let failed = socket::getsockopt(&socket, sockopt::SocketError)
                .during("cannot read a flow's connection error")?;
            if failed == 0 {
                return Ok(Some(socket));
            }
            let retry_at = self.stage.clock.now() + RETRY;
            sleep_until(self.stage.clock, retry_at.min(self.plan.stop), &self.stage.stop)?;
        }
        Ok(None)
    }

    /// Sends until the flow's time or bytes are over; returns why it could not.
    fn send(&self, socket: &OwnedFd) -> Result<Option<String>, HostError> {
        let zeros = vec![0; CHUNK];
        let mut left = self.plan.bytes.map_or(u64::MAX, Bytes::as_u64);
        while left > 0 && !self.is_over() {
            let chunk = &zeros[..left.min(CHUNK as u64) as usize];
            match socket::send(socket.as_raw_fd(), chunk, MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) if self.plan.bytes.is_some() => left -= sent as u64,
                Ok(_) => {}
                Err(Errno::EAGAIN) => self.until_writable(socket)?,
                Err(Errno::EINTR) => {}
                Err(error) => return Ok(Some(error.desc().to_owned())),
            }
        }
        if left == 0 {
            // The receiver wakes for the end of the stream, however little comes before it.
            if let Err(error) = socket::shutdown(socket.as_raw_fd(), Shutdown::Write) {
                return Ok(Some(error.desc().to_owned()));
            }
        }
        while self.view.completed.get().is_none() && !self.is_over() {
            let done = (self.view.completion.as_fd(), PollFlags::POLLIN);
            wait(self.stage.clock, self.plan.stop, &self.stage.stop, Some(done))?;
        }
        Ok(None)
    }

    fn until_writable(&self, socket: &OwnedFd) -> Result<(), HostError> {
        let writable = (socket.as_fd(), PollFlags::POLLOUT);
        wait(self.stage.clock, self.plan.stop, &self.stage.stop, Some(writable))
    }

    /// Takes the last sample and closes the connection.
    fn finish(&self, broken: Option<String>) -> Result<(), HostError> {
        let completed = self.view.completed.get().copied();
        let now = self.stage.clock.now().min(self.plan.stop);
        let last = self.view.sample()?.unwrap_or_default();
        let end = BulkEnd { at: completed.unwrap_or(now), last, completed, broken };
        self.view.end.get_or_init(|| end);
        if let Some(socket) = held(&self.view.sender).filter(|_| completed.is_none()) {
            // What is still in the socket shall not trail into the next flow's time.
            let reset = libc::linger { l_onoff: 1, l_linger: 0 };
            socket::setsockopt(&socket, sockopt::Linger, &reset)
                .during("cannot reset a flow's connection")?;
        }
        hold(&self.view.sender, None);
        Ok(())
    }
}

// --- the receiver ---

fn receive(plan: &BulkPlan, view: &BulkView, stage: &Stage) -> Result<(), HostError> {
    // A sender that lost its connection in an outage comes again.
    while !stage.close.is_set() {
        match view.listener.accept() {
            Ok((connection, _)) => {
                // Bounds how long the end of the run goes unnoticed.
                connection.set_read_timeout(Some(PATIENCE)).during("cannot set up a flow")?;
                set_int(&connection, libc::SOL_SOCKET, libc::SO_RCVLOWAT, WAKE_AT)
                    .during("cannot set up a flow")?;
                let socket = Arc::new(OwnedFd::from(connection));
                hold(&view.receiver, Some(Arc::clone(&socket)));
                discard(plan, view, stage, &socket)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let pending = (view.listener.as_fd(), PollFlags::POLLIN);
                wait(stage.clock, Instant::NEVER, &stage.close, Some(pending))?;
            }
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error).during("cannot accept a flow's connection"),
        }
    }
    Ok(())
}

/// Discards what arrives until the connection ends.
fn discard(
    plan: &BulkPlan,
    view: &BulkView,
    stage: &Stage,
    socket: &OwnedFd,
) -> Result<(), HostError> {
    let expected = plan.bytes.map_or(u64::MAX, Bytes::as_u64);
    let mut received = 0;
    loop {
        match discard_some(socket) {
            Ok(0) => return Ok(()),
            Ok(length) => received += length as u64,
            Err(Errno::EINTR | Errno::EAGAIN) if stage.close.is_set() => return Ok(()),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(Errno::ECONNRESET | Errno::ETIMEDOUT) => return Ok(()),
            Err(error) => return Err(error).during("cannot receive a flow's data"),
        }
        if received >= expected && view.completed.get().is_none() {
            view.completed.get_or_init(|| stage.clock.now());
            view.completion.set()?;
        }
    }
}

/// tcp(7): with `MSG_TRUNC` the kernel discards what it would have copied.
fn discard_some(socket: &OwnedFd) -> Result<usize, Errno> {
    // SAFETY: with MSG_TRUNC the kernel writes nothing, so that no buffer is needed.
    let discarded =
        unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), DISCARD, libc::MSG_TRUNC) };
    Errno::result(discarded).map(|length| length as usize)
}
