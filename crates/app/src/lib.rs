//! Applications at the two ends of a flow, sans IO: what they send, when, and what they find.
//!
//! An [`App`] is what a scenario says (`app = { kind = "request-response", … }`). Each engine asks it
//! for its two ends and drives them over its own transport. Over a [stream](Transport::Stream) the client
//! opens connections, one after the other or several at a time, and the server has one end for each of them; over [datagrams](Transport::Datagrams)
//! each has one end from the start. After every event an engine calls [`Application::poll`] until that
//! says [`Action::Wait`], and again when that time has come. Nothing here knows a transport's bytes:
//! they have no content, only number and order. What both ends must know of each other (sizes, times)
//! both draw from the same seed.
//!
//! An application is one file here and its row in the table of `kinds.rs`.

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
pub use dash::{Dash, Foretold, Oracle, Predicted};
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
    /// Something has happened at this end.
    fn on_event(&mut self, now: Instant, event: Event);

    /// Something has happened at one of several connections: those that the client opened with [`Action::Open`].
    fn on_event_of(&mut self, now: Instant, _connection: u32, event: Event) {
        self.on_event(now, event);
    }

    /// What it does now. Asked again after everything but [`Action::Wait`].
    fn poll(&mut self, now: Instant) -> Action;

    /// How much more has to be read before it cares to hear of it (SO_RCVLOWAT): an engine may keep less to itself until
    /// there is so much, or the other end has finished.
    fn low_water(&self) -> Bytes {
        Bytes::new(1)
    }

    /// The engine knows that `sender`'s datagram with this number was lost on its way. No real end learns
    /// that: it is for results alone, and never told by engines that do not know either.
    fn on_known_loss(&mut self, _sender: Side, _number: u64) {}

    /// What has been completed, or has failed, by `now` and since it was last asked.
    fn take_results(&mut self, _now: Instant) -> Vec<Transaction> {
        Vec::new()
    }

    /// What else has failed, now that nothing arrives any more. What could still have come after the run's
    /// `end` has not; [`Instant::NEVER`]: everything has been waited for.
    fn conclude(&mut self, _end: Instant) -> Vec<Transaction> {
        Vec::new()
    }

    /// When all that was to be transferred had arrived at this end, of what has an end.
    fn completed(&self) -> Option<Instant> {
        None
    }
}

/// What happens at an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The connection is there.
    Connected,
    /// So many bytes more have been read.
    Received(Bytes),
    /// The other end has no more to send, and all of it has been read.
    PeerFinished,
    /// The connection is gone before its time: refused, reset or given up.
    Lost,
    /// A datagram has arrived.
    Datagram(Datagram),
}

/// A message that arrives whole or not at all, in whatever order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// The application's own number for it: all that it says.
    pub number: u64,
    /// Its payload; one of [`DATAGRAM_SIZES`].
    pub size: Bytes,
}

/// The payloads that a datagram may have: there is room for its number, and it fits into one packet.
pub const DATAGRAM_SIZES: RangeInclusive<Bytes> = Bytes::new(16)..=Bytes::new(1472);

/// What an end does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The client's: opens a connection, in place of the former one.
    Connect,
    /// The client's: opens a connection with this number beside those that it has, and turns to it. Who opens
    /// connections so never asks for one with `Connect`.
    Open(u32),
    /// The client's, of several: what follows is about its connection with this number.
    Turn(u32),
    /// Sends so much more; what the transport has no room for waits in front of it.
    Write(Bytes),
    /// Sends as fast as the transport takes it, until `Finish` or `Pause`.
    WriteWithoutEnd,
    /// Ends a writing without end: what the transport has taken is all.
    Pause,
    /// Sends no more once everything has left; the other end reads to the end.
    Finish,
    /// Drops the connection with all that is in it.
    Abort,
    /// Sends a datagram; one that the transport has no room for is lost.
    Send(Datagram),
    /// Nothing until then, or until something happens; [`Instant::NEVER`]: until something happens.
    Wait(Instant),
}

/// What an end must know of its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFacts {
    /// The seed of all that it draws: the same at both ends.
    pub seed: u64,
    /// When the flow begins.
    pub start: Instant,
    /// When it ends.
    pub stop: Instant,
}

/// What there is to be known of an application.
pub trait Kind {
    /// What carries it.
    fn transport(&self) -> Transport {
        Transport::Stream
    }

    /// The end that opens connections, or sends first. It is asked first at the flow's start.
    fn client(&self, flow: &FlowFacts) -> Box<dyn Application>;

    /// The other end of the client's connection with this number, counted from 0; of datagrams, 0.
    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application>;

    /// What its keys ask for that cannot be: the key and why.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Which end sends most: the flow's samples and its goodput are about that direction.
    fn sends(&self) -> Side {
        Side::Client
    }

    /// How fast the other end of that direction reads; `None`: at once.
    fn read_rate(&self) -> Option<Rate> {
        None
    }

    /// How much is transferred before the flow is complete, of what has an end.
    fn bytes(&self) -> Option<Bytes> {
        None
    }

    /// How many messages it sends in a second, of what sends them at even times.
    fn messages_per_s(&self) -> Option<f64> {
        None
    }

    /// Where its results go.
    fn table(&self) -> Option<AppTable> {
        None
    }
}

/// What carries an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Connections with bytes in order, which all arrive (TCP).
    Stream,
    /// Datagrams without a connection (UDP). Each end sends until the flow's stop by its own account, and
    /// is told of what arrives until the end of the run.
    Datagrams,
}

/// One of a flow's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// That which opens connections, or sends first.
    Client,
    /// The other.
    Server,
}

impl Side {
    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
