//! Messages from the engine's process to the caller's, over a pipe.

use std::fs::File;

use serde::{Deserialize, Serialize};
use skyhop_record::{FileError, Piece, Sink};

use skyhop_host::error::{Context, HostError};

/// Message from the engine to the caller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Progress: elapsed time of the run in ns.
    Progress { elapsed_ns: u64 },
    /// Part of the recorded rows and files.
    Piece(Piece),
    /// End of the run; all pieces have been sent.
    Done { at_ns: u64, interrupted: bool, program_status: Option<i32> },
    /// Error that ended the run.
    Failed(HostError),
}

/// Write one message to the pipe.
pub(crate) fn send(mut pipe: &File, message: &Message) -> Result<(), HostError> {
    skyhop_record::send(&mut pipe, message).context("cannot hand the run's results over")
}

/// Recorder sink that sends pieces to the caller.
pub(crate) struct CallerSink<'p>(pub(crate) &'p File);

impl Sink for CallerSink<'_> {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        send(self.0, &Message::Piece(piece))
            .map_err(|error| FileError::Stream { reason: error.to_string() })
    }
}
