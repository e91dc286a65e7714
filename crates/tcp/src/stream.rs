//! Stream of bytes that the application sends, and its end.

/// Lengths of the application's stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// Number of bytes that the application wants to send (`u64::MAX` for an endless stream), and how many of
    /// them have entered the send buffer.
    wanted: u64,
    written: u64,
    finished: bool,
    /// Sequence number of the segment with the FIN, once it has been sent.
    fin: Option<u64>,
}

impl Stream {
    pub(crate) const fn new() -> Self {
        Self { wanted: 0, written: 0, finished: false, fin: None }
    }

    pub(crate) fn write(&mut self, bytes: u64) {
        if !self.finished {
            self.wanted = self.wanted.saturating_add(bytes);
        }
    }

    pub(crate) fn write_without_end(&mut self) {
        if !self.finished {
            self.wanted = u64::MAX;
        }
    }

    /// Write up to byte `end` into the send buffer, as far as the application has data. If the application has
    /// more data than that, stop after a whole number of segments from the last byte sent.
    pub(crate) fn accept(&mut self, sent: u64, end: u64, mss: u64) {
        let whole = sent + end.saturating_sub(sent) / mss * mss;
        let end = if self.wanted <= end { self.wanted } else { whole };
        self.written = self.written.max(end);
    }

    /// Stop an endless stream after the last byte written to the send buffer.
    pub(crate) fn pause(&mut self) {
        if self.wanted == u64::MAX {
            self.wanted = self.written;
        }
    }

    /// Close the stream. An endless stream ends after the last byte written to the send buffer.
    pub(crate) fn finish(&mut self) {
        if !self.finished {
            self.pause();
        }
        self.finished = true;
    }

    /// Number of bytes that have entered the send buffer so far.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Number of bytes that the application wants to send; `u64::MAX` for an endless stream.
    pub(crate) const fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Whether the application waits for room in the send buffer.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.written < self.wanted
    }

    /// Whether the stream is closed and entirely written.
    pub(crate) const fn is_finished(&self) -> bool {
        self.finished && !self.is_blocked()
    }

    /// Whether a FIN is due that was never sent.
    pub(crate) const fn fin_is_due(&self) -> bool {
        self.is_finished() && self.fin.is_none()
    }

    /// Let segment `seq` carry the FIN.
    pub(crate) fn send_fin(&mut self, seq: u64) {
        self.fin = Some(seq);
    }

    /// Whether segment `seq` carries the FIN.
    pub(crate) fn is_fin(&self, seq: u64) -> bool {
        self.fin == Some(seq)
    }

    /// Whether segments below `una` include the FIN, that is, the whole stream.
    pub(crate) fn is_complete(&self, una: u64) -> bool {
        self.fin.is_some_and(|fin| fin < una)
    }
}
