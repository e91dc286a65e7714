//! State of a TCP flow that its threads share with the sampler, and its final state.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use skyhop_app::{Side, Transaction};
use skyhop_host::clock::Stop;
use skyhop_host::error::HostError;
use skyhop_host::tcp_info::{TcpInfo, tcp_info};
use skyhop_units::{Bytes, Instant};

use super::connection::Connection;

/// State of a TCP flow that its threads share with the sampler.
#[derive(Debug)]
pub(crate) struct TcpView {
    sends: Side,
    client: Mutex<Sockets>,
    server: Mutex<Sockets>,
    results: Mutex<Vec<Transaction>>,
    /// Time at which the last byte of a finite transfer arrived.
    completed: OnceLock<Instant>,
    completion: Stop,
    end: OnceLock<TcpEnd>,
}

/// Final state of a TCP flow.
#[derive(Debug, Clone)]
pub(crate) struct TcpEnd {
    pub(crate) at: Instant,
    pub(crate) last: TcpSample,
    pub(crate) completed: Option<Instant>,
    /// Reason why the flow ended early; `None` if it did not end early.
    broken: Option<String>,
}

impl TcpEnd {
    /// Warning about a flow that ended early.
    pub(crate) fn warning(&self, id: u32) -> Option<String> {
        let reason = self.broken.as_ref()?;
        Some(format!("flow {id} ended early, at {:.1} s: {reason}", self.at.as_secs_f64()))
    }
}

/// Sample of a flow in its main data direction; counters are summed over all its connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TcpSample {
    /// TCP_INFO of the sender of the current connection.
    pub(crate) sender: TcpInfo,
    /// Number of segments retransmitted.
    pub(crate) retransmits: u64,
    /// Number of segments with payload sent, including retransmissions.
    pub(crate) data_segments_sent: u64,
    /// Payload received in order.
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

    /// Side that sends most of the data.
    pub(super) fn sends(&self) -> Side {
        self.sends
    }

    /// Take a sample now; `None` before the first socket.
    pub(crate) fn sample(&self) -> Result<Option<TcpSample>, HostError> {
        let sent = self.sockets(self.sends).counts()?;
        let Some(sender) = sent.last else { return Ok(None) };
        let received = Bytes::new(self.sockets(self.sends.other()).counts()?.received);
        let Counts { retransmits, data_segments_sent, .. } = sent;
        Ok(Some(TcpSample { sender, retransmits, data_segments_sent, received }))
    }

    /// Take the applications' transactions completed since the last call.
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

    /// Add a connection at `side`, which becomes the current one.
    pub(super) fn opened(&self, side: Side, connection: &Connection) {
        self.sockets(side).open.push(Arc::clone(connection.socket()));
    }

    /// Remove a connection that is about to be closed, and add its counters to those of past connections.
    pub(super) fn closed(&self, side: Side, connection: &Connection) -> Result<(), HostError> {
        let mut sockets = self.sockets(side);
        let mut info = tcp_info(connection.socket())?;
        // The kernel counts the FIN as one byte.
        let stream_length = connection.stream_length().map(Bytes::as_u64);
        info.bytes_received = stream_length.unwrap_or(info.bytes_received);
        sockets.past.add(info);
        sockets.open.retain(|socket| !Arc::ptr_eq(socket, connection.socket()));
        Ok(())
    }

    // --- its end ---

    /// Mark a finite transfer as complete at time `at`.
    pub(super) fn complete(&self, at: Instant) -> Result<(), HostError> {
        if self.completed.set(at).is_ok() { self.completion.set() } else { Ok(()) }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.completed.get().is_some()
    }

    /// Event, readable by poll(2), that is set on completion.
    pub(super) fn completion(&self) -> &Stop {
        &self.completion
    }

    /// Final state of the flow; `None` while it runs.
    pub(crate) fn end(&self) -> Option<&TcpEnd> {
        self.end.get()
    }

    /// Whether the flow is complete or has ended for another reason.
    pub(super) fn has_ended(&self) -> bool {
        self.is_complete() || self.end().is_some()
    }

    /// End the flow now, unless it has already ended. `broken` is the reason of an early end.
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

/// Sockets of one end of a flow.
#[derive(Debug, Default)]
struct Sockets {
    /// Open sockets, the current one last.
    open: Vec<Arc<OwnedFd>>,
    /// Counters of the closed sockets.
    past: Counts,
}

impl Sockets {
    /// Counters summed over open and closed sockets.
    fn counts(&self) -> Result<Counts, HostError> {
        let mut counts = self.past;
        for socket in &self.open {
            counts.add(tcp_info(socket)?);
        }
        Ok(counts)
    }
}

/// Counters summed over several connections.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    received: u64,
    retransmits: u64,
    data_segments_sent: u64,
    /// TCP_INFO of the last connection added.
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
