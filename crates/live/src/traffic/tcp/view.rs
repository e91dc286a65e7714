//! What others may look at while a flow runs, and what is left of it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use skyhop_app::{Side, Transaction};
use skyhop_host::clock::Stop;
use skyhop_host::error::HostError;
use skyhop_host::tcp_info::{TcpInfo, tcp_info};
use skyhop_units::{Bytes, Instant};

use super::connection::Connection;

/// What others may look at while a flow runs.
#[derive(Debug)]
pub(crate) struct TcpView {
    sends: Side,
    client: Mutex<Sockets>,
    server: Mutex<Sockets>,
    results: Mutex<Vec<Transaction>>,
    /// When the last byte of a finite transfer had arrived.
    completed: OnceLock<Instant>,
    completion: Stop,
    end: OnceLock<TcpEnd>,
}

/// A flow at its end.
#[derive(Debug, Clone)]
pub(crate) struct TcpEnd {
    pub(crate) at: Instant,
    pub(crate) last: TcpSample,
    pub(crate) completed: Option<Instant>,
    /// Why it ended before its time.
    broken: Option<String>,
}

impl TcpEnd {
    /// What to know of a flow that ended before its time.
    pub(crate) fn warning(&self, id: u32) -> Option<String> {
        let reason = self.broken.as_ref()?;
        Some(format!(
            "flow {id} ended at {:.1} s, before its time: {reason}",
            self.at.as_secs_f64()
        ))
    }
}

/// A flow at a moment, in the direction in which most is sent: counts are those of all its connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TcpSample {
    /// The sender's side of the current connection.
    pub(crate) sender: TcpInfo,
    /// Segments retransmitted.
    pub(crate) retransmits: u64,
    /// Segments with payload sent, retransmissions included.
    pub(crate) data_segments_sent: u64,
    /// Payload that has reached the receiver in order.
    pub(crate) received: Bytes,
}

impl TcpView {
    pub(super) fn new(sends: Side) -> Result<Self, HostError> {
        Ok(Self {
            sends,
            client: Mutex::default(),
            server: Mutex::default(),
            results: Mutex::default(),
            completed: OnceLock::new(),
            completion: Stop::new()?,
            end: OnceLock::new(),
        })
    }

    /// The end that sends most.
    pub(super) fn sends(&self) -> Side {
        self.sends
    }

    /// The flow now; `None` while it has had no socket.
    pub(crate) fn sample(&self) -> Result<Option<TcpSample>, HostError> {
        let sent = self.sockets(self.sends).counts()?;
        let Some(sender) = sent.last else { return Ok(None) };
        let received = Bytes::new(self.sockets(self.sends.other()).counts()?.received);
        let Counts { retransmits, data_segments_sent, .. } = sent;
        Ok(Some(TcpSample { sender, retransmits, data_segments_sent, received }))
    }

    /// What the applications have found since it was last asked.
    pub(crate) fn take_results(&self) -> Vec<Transaction> {
        std::mem::take(&mut lock(&self.results))
    }

    pub(super) fn add_results(&self, results: Vec<Transaction>) {
        if !results.is_empty() {
            lock(&self.results).extend(results);
        }
    }

    // --- its connections ---

    fn sockets(&self, side: Side) -> MutexGuard<'_, Sockets> {
        lock(match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        })
    }

    /// There is a connection more at `side`, which is the current one from now on.
    pub(super) fn opened(&self, side: Side, connection: &Connection) {
        self.sockets(side).open.push(Arc::clone(connection.socket()));
    }

    /// This connection is about to be closed: what it has counted is kept.
    pub(super) fn closed(&self, side: Side, connection: &Connection) -> Result<(), HostError> {
        let mut sockets = self.sockets(side);
        let mut info = tcp_info(connection.socket())?;
        // The kernel counts the end of a stream as one byte more.
        let whole = connection.received_whole().map(Bytes::as_u64);
        info.bytes_received = whole.unwrap_or(info.bytes_received);
        sockets.past.add(info);
        sockets.open.retain(|socket| !Arc::ptr_eq(socket, connection.socket()));
        Ok(())
    }

    // --- its end ---

    /// All that was to be transferred has arrived.
    pub(super) fn complete(&self, at: Instant) -> Result<(), HostError> {
        if self.completed.set(at).is_ok() { self.completion.set() } else { Ok(()) }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.completed.get().is_some()
    }

    /// Readable once it is complete.
    pub(super) fn completion(&self) -> &Stop {
        &self.completion
    }

    /// How the flow ended, once it has.
    pub(crate) fn end(&self) -> Option<&TcpEnd> {
        self.end.get()
    }

    /// Whether it is complete, or has ended otherwise.
    pub(super) fn has_ended(&self) -> bool {
        self.is_complete() || self.end().is_some()
    }

    /// The flow ends now, unless it has before.
    pub(super) fn conclude(&self, now: Instant, broken: Option<String>) -> Result<(), HostError> {
        let completed = self.completed.get().copied();
        let last = self.sample()?.unwrap_or_default();
        let end = TcpEnd { at: completed.unwrap_or(now), last, completed, broken };
        self.end.get_or_init(|| end);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sockets of one end.
#[derive(Debug, Default)]
struct Sockets {
    /// Those that are open, the current one last.
    open: Vec<Arc<OwnedFd>>,
    /// Of those that are closed.
    past: Counts,
}

impl Sockets {
    /// Of all of them.
    fn counts(&self) -> Result<Counts, HostError> {
        let mut counts = self.past;
        for socket in &self.open {
            counts.add(tcp_info(socket)?);
        }
        Ok(counts)
    }
}

/// What several connections have counted.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    received: u64,
    retransmits: u64,
    data_segments_sent: u64,
    /// The last one's.
    last: Option<TcpInfo>,
}

impl Counts {
    fn add(&mut self, info: TcpInfo) {
        self.received += info.bytes_received;
        self.retransmits += u64::from(info.retransmits);
        self.data_segments_sent += u64::from(info.data_segments_sent);
        self.last = Some(info);
    }
}
