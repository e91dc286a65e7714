//! What the engine's process tells the caller's, over a pipe.

use std::fs::File;
use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::error::{During, LiveError};
use crate::outcome::LiveOutcome;

/// One message: a length in four bytes, then JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// How far the run is.
    Progress { elapsed_ns: u64, total_ns: u64 },
    /// The run is over.
    Done(Box<LiveOutcome>),
    /// The run could not be done.
    Failed(LiveError),
}

/// Writes one message.
pub(crate) fn send(pipe: &mut File, message: &Message) -> Result<(), LiveError> {
    let json = serde_json::to_vec(message).map_err(std::io::Error::other);
    let json = json.during("cannot encode the run's results")?;
    let length = u32::try_from(json.len()).map_err(std::io::Error::other);
    let length = length.during("the run's results are larger than 4 GB")?;
    pipe.write_all(&length.to_le_bytes())
        .and_then(|()| pipe.write_all(&json))
        .during("cannot hand the run's results over")
}

/// Puts messages together from the bytes as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
}

impl Reader {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, once it is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, LiveError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        let Some(json) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(json).map_err(std::io::Error::other);
        let message = message.during("cannot decode the engine's message")?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }
}
