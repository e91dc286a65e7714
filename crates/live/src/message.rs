//! What the engine's process tells the caller's, over a pipe.

use std::fs::File;

use serde::{Deserialize, Serialize};
use skyhop_record::{FileError, Piece, Sink};

use skyhop_host::error::{Context, HostError};

/// One message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// How far the run is.
    Progress { elapsed_ns: u64 },
    /// A piece of what was measured.
    Piece(Piece),
    /// The run is over, and all pieces were sent.
    Done { at_ns: u64, interrupted: bool, program_status: Option<i32> },
    /// The run could not be done.
    Failed(HostError),
}

/// Writes one message.
pub(crate) fn send(mut pipe: &File, message: &Message) -> Result<(), HostError> {
    skyhop_record::send(&mut pipe, message).context("cannot hand the run's results over")
}

/// Passes pieces on to the caller.
pub(crate) struct CallerSink<'p>(pub(crate) &'p File);

impl Sink for CallerSink<'_> {
    fn take(&mut self, piece: Piece) -> Result<(), FileError> {
        send(self.0, &Message::Piece(piece))
            .map_err(|error| FileError::Stream { reason: error.to_string() })
    }
}
