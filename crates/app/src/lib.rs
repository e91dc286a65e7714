//! Applications at the two ends of a flow, sans IO: what they send and when, and the results they measure.
//!
//! An [`App`] is an application as a scenario describes it (`app = { kind = "request-response", … }`). An
//! engine creates the application's two ends from it and drives them over the engine's own transport. Over a
//! [stream](Transport::Stream) the client opens connections, one at a time or several at once, and the server
//! has one end per connection; over [datagrams](Transport::Datagrams) there is one end on each side from the
//! start. After each event the engine calls [`Application::poll`] until it returns [`Action::Wait`], and
//! again at the time in that action. The bytes of a transport have no content for applications, only number
//! and order. Values on which both ends must agree (sizes, times) are drawn from the same seed at both ends.
//!
//! Each application is one file in this directory and a row in the table of `kinds.rs`.

mod bulk;
mod call;
mod constant_rate;
mod dash;
mod draw;
mod emodel;
mod kinds;
mod on_off;
mod options;
mod page;
mod probe;
mod reader;
mod request_response;
#[cfg(test)]
mod tests;
mod transaction;

use std::fmt;
use std::ops::RangeInclusive;

use skyhop_model::AppTable;
use skyhop_units::{Bytes, Instant, Rate};

pub use bulk::Bulk;
pub use call::Call;
pub use constant_rate::ConstantRate;
pub use dash::{Dash, Oracle, Predicted, RateOracle};
pub use draw::{Distribution, Draw, Quantity};
pub use emodel::Codec;
pub use kinds::{APPS, App, AppEntry};
pub use on_off::OnOff;
pub use options::{TcpKeys, TcpOptions};
pub use page::Page;
pub use probe::Probe;
pub use reader::Reader;
pub use request_response::RequestResponse;
pub use transaction::{CallWindow, Detail, Frames, Transaction};

/// One end of a flow's application.
pub trait Application: fmt::Debug + Send {
    /// Handle an event at this end.
    fn on_event(&mut self, now: Instant, event: Event);

    /// Handle an event on one of the connections that the client opened with [`Action::Open`].
    fn on_connection_event(&mut self, now: Instant, _connection: u32, event: Event) {
        self.on_event(now, event);
    }

    /// Return the next action. The engine calls this again after every action except [`Action::Wait`].
    fn poll(&mut self, now: Instant) -> Action;

    /// Minimum number of received bytes per event (SO_RCVLOWAT): an engine may delay [`Event::Received`]
    /// until there are so many bytes, or until the other end has finished.
    fn low_water(&self) -> Bytes {
        Bytes::new(1)
    }

    /// Record that `sender`'s datagram `number` was lost in transit. A real end would not learn of the loss,
    /// so that only results may depend on it. Engines that do not know of losses never call this.
    fn on_known_loss(&mut self, _sender: Side, _number: u64) {}

    /// Return the transactions that have completed or failed since the last call, up to `now`.
    fn take_results(&mut self, _now: Instant) -> Vec<Transaction> {
        Vec::new()
    }

    /// Return the remaining failed transactions, after the last arrival. A transaction that could still have
    /// completed after `end`, the run's end, does not count as failed. [`Instant::NEVER`] means that the
    /// engine has waited for everything in transit.
    fn conclude(&mut self, _end: Instant) -> Vec<Transaction> {
        Vec::new()
    }

    /// Time at which the last byte of a finite transfer arrived at this end; `None` before.
    fn completed(&self) -> Option<Instant> {
        None
    }
}

/// Event at an end of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The connection is established.
    Connected,
    /// Number of bytes newly read.
    Received(Bytes),
    /// The other end has finished sending, and all its bytes have been read.
    PeerFinished,
    /// The connection ended prematurely: refused, reset or timed out.
    Lost,
    /// A datagram has arrived.
    Datagram(Datagram),
}

/// Message that arrives complete or not at all; messages may arrive in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Number that the application gave the datagram; its only content.
    pub number: u64,
    /// Size of the payload, within [`DATAGRAM_SIZES`].
    pub size: Bytes,
}

/// Payload sizes of datagrams: large enough for their number, and small enough for one packet.
pub const DATAGRAM_SIZES: RangeInclusive<Bytes> = Bytes::new(16)..=Bytes::new(1472);

/// Action of an end, for the engine to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Client only: open a connection in place of the previous one.
    Connect,
    /// Client only: open an additional connection with this number and select it. Clients that use `Open`
    /// never use `Connect`.
    Open(u32),
    /// Client only: select the connection with this number for the following actions.
    Select(u32),
    /// Send this many more bytes. Bytes for which the send buffer has no room wait in front of it.
    Write(Bytes),
    /// Send as fast as the transport accepts bytes, until `Finish` or `Pause`.
    WriteWithoutEnd,
    /// End [`Action::WriteWithoutEnd`]; bytes that are already in the send buffer are still sent.
    Pause,
    /// Close the sending direction (FIN) after all written bytes have been sent; the other end can
    /// read them all.
    Finish,
    /// Abort the connection and discard the bytes in it.
    Abort,
    /// Send a datagram; it is lost if the transport has no room for it.
    Send(Datagram),
    /// Do nothing until this time or the next event, whichever is first; with [`Instant::NEVER`],
    /// until the next event.
    Wait(Instant),
}

/// Properties of the flow that an end needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFacts {
    /// Seed of the end's random draws, the same at both ends.
    pub seed: u64,
    /// Start of the flow.
    pub start: Instant,
    /// Stop of the flow.
    pub stop: Instant,
}

/// Application kind: creates the two ends, checks the keys, and describes the traffic to engines.
pub trait AppKind {
    /// Transport that carries the application.
    fn transport(&self) -> Transport {
        Transport::Stream
    }

    /// Create the client end, which opens connections or sends first. Engines poll it first at the flow's
    /// start.
    fn client(&self, flow: &FlowFacts) -> Box<dyn Application>;

    /// Create the server end of the client's connection with this number, counted from 0; with datagrams
    /// always 0.
    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application>;

    /// Check the keys. The error is the invalid key and the reason.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// End that sends most of the data; the flow's samples and goodput refer to the direction from this end.
    fn sends(&self) -> Side {
        Side::Client
    }

    /// Rate at which the application reads received data in that direction; `None` if it reads data on arrival.
    fn read_rate(&self) -> Option<Rate> {
        None
    }

    /// Size of the transfer after which the flow is complete; `None` if the size is not limited.
    fn bytes(&self) -> Option<Bytes> {
        None
    }

    /// Messages per second, for applications that send at regular intervals.
    fn messages_per_s(&self) -> Option<f64> {
        None
    }

    /// Table of the application's results, if it has any.
    fn table(&self) -> Option<AppTable> {
        None
    }
}

/// Transport that carries an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Connections that deliver all bytes in order (TCP).
    Stream,
    /// Datagrams without a connection (UDP). Each end sends until the flow's stop, and receives until the
    /// end of the run.
    Datagrams,
}

/// End of a flow: client or server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// End that opens connections, or sends first.
    Client,
    /// End that accepts connections, or receives first.
    Server,
}

impl Side {
    /// Return the opposite end.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
