//! Results of applications: one row per transaction, in one table for each kind of application.

use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration, Instant};
use skyhop_video::ChunkRow;

use crate::Side;

/// Unit of an application's work (request, page, message, probe, chunk …) and its outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transaction {
    /// Number of the flow's connection, counted from 0.
    pub connection: u32,
    /// Number of the transaction within the flow, counted from 0.
    pub number: u64,
    /// Time at which the transaction was due, from which its durations are counted.
    pub due: Instant,
    /// Bytes that the client sent for the transaction.
    pub sent: Bytes,
    /// Bytes that the server sent for the transaction.
    pub answered: Bytes,
    /// Time to open the transaction's connection; `None` if it used an open connection.
    pub connect: Option<Duration>,
    /// Time to the first byte of the answer; `None` if no byte arrived or no answer was requested.
    pub first_byte: Option<Duration>,
    /// Time until the client had read the whole answer; `None` if the transaction failed.
    pub took: Option<Duration>,
    /// Fields that are specific to the kind of application.
    pub detail: Detail,
}

/// Fields of a transaction that only one kind of application has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Detail {
    /// No fields in addition to the common ones.
    None,
    /// Web page, with the number of its objects.
    Page {
        /// Number of objects in addition to the document.
        objects: u32,
    },
    /// Object of a web page (or its document).
    Object {
        /// Number of the page within the flow, counted from 0.
        page: u64,
    },
    /// Measurement window of a call.
    Call(CallWindow),
    /// Chunk of a film.
    Chunk(ChunkRow),
}

impl Detail {
    /// Table to which a transaction with this detail belongs; `None` for the application's main table.
    pub const fn table(&self) -> Option<AppTable> {
        match self {
            Self::Object { .. } => Some(AppTable::Objects),
            Self::None | Self::Page { .. } | Self::Call(_) | Self::Chunk(_) => None,
        }
    }
}

/// Measurements of one direction of a call over a window of time, made by the receiver of that direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallWindow {
    /// End that sent this direction.
    pub sender: Side,
    /// Audio frames of the window.
    pub audio: Frames,
    /// Video frames of the window.
    pub video: Frames,
    /// Mean one-way delay of the audio packets that arrived; `None` if no audio packet arrived.
    pub delay: Option<Duration>,
    /// Interarrival jitter of the audio packets at the window's end (RFC 3550 6.4.1).
    pub jitter: Duration,
    /// Mean opinion score of the E-model (ITU-T G.107), 1 to 4.5.
    pub mos: f64,
}

/// Outcome of media frames at the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frames {
    /// Number of frames due at the sender.
    pub due: u64,
    /// Number of these frames that were complete only after their playout time.
    pub late: u64,
    /// Number of these frames that never were complete.
    pub lost: u64,
}
