//! What the application has to send, as a number of segments.

/// The data behind the segments. All are full-size but the last of a finished stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    mss: u32,
    /// Bytes written so far; `None`: without end.
    written: Option<u64>,
    finished: bool,
}

impl Stream {
    pub(crate) const fn new(mss: u32) -> Self {
        Self { mss, written: Some(0), finished: false }
    }

    pub(crate) fn write(&mut self, bytes: u64) {
        if !self.finished {
            self.written = self.written.map(|written| written + bytes);
        }
    }

    pub(crate) fn write_without_end(&mut self) {
        if !self.finished {
            self.written = None;
        }
    }

    /// No more will be written. An endless stream ends behind segment `nxt`.
    pub(crate) fn finish(&mut self, nxt: u64) {
        if !self.finished {
            self.finished = true;
            self.written.get_or_insert(nxt * u64::from(self.mss));
        }
    }

    /// The segment after the last that can be sent. A part of a segment waits until it is full or
    /// the stream is finished (RFC 9293 3.7.4).
    pub(crate) fn end(&self) -> u64 {
        let mss = u64::from(self.mss);
        match self.written {
            None => u64::MAX,
            Some(written) if self.finished => written.div_ceil(mss),
            Some(written) => written / mss,
        }
    }

    pub(crate) fn is_last(&self, seq: u64) -> bool {
        self.finished && seq + 1 == self.end()
    }

    /// The payload of a segment in bytes.
    pub(crate) fn payload(&self, seq: u64) -> u32 {
        let Some(written) = self.written.filter(|_| self.is_last(seq)) else {
            return self.mss;
        };
        (written - seq * u64::from(self.mss)) as u32
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }
}
