//! What the application has to send, in bytes.

/// The data behind the segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// Bytes that the application has, and those of them that there was room for in the send buffer. `u64::MAX`:
    /// without end.
    wanted: u64,
    written: u64,
    finished: bool,
    /// The segment that carries the FIN, once it has left.
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

    /// There is room in the send buffer up to byte `end`. Who has to stop short stops behind a whole segment, counted
    /// from what has been sent.
    pub(crate) fn accept(&mut self, sent: u64, end: u64, mss: u64) {
        let whole = sent + end.saturating_sub(sent) / mss * mss;
        let end = if self.wanted <= end { self.wanted } else { whole };
        self.written = self.written.max(end);
    }

    /// Ends a writing without end: what has been written is all so far.
    pub(crate) fn pause(&mut self) {
        if self.wanted == u64::MAX {
            self.wanted = self.written;
        }
    }

    /// No more will be written. An endless stream ends where it has been written to.
    pub(crate) fn finish(&mut self) {
        if !self.finished {
            self.pause();
        }
        self.finished = true;
    }

    /// Where it ends, as far as there was room for it.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Where it ends, as far as the application knows.
    pub(crate) const fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Whether the application waits for room.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.written < self.wanted
    }

    /// Whether what has been written is all there will be.
    pub(crate) const fn is_finished(&self) -> bool {
        self.finished && !self.is_blocked()
    }

    /// Whether a FIN has to leave that never did.
    pub(crate) const fn fin_is_due(&self) -> bool {
        self.is_finished() && self.fin.is_none()
    }

    /// Segment `seq` takes the FIN.
    pub(crate) fn send_fin(&mut self, seq: u64) {
        self.fin = Some(seq);
    }

    /// Whether segment `seq` carries the FIN.
    pub(crate) fn is_fin(&self, seq: u64) -> bool {
        self.fin == Some(seq)
    }

    /// Whether everything below `una` is all there is, the FIN included.
    pub(crate) fn is_complete(&self, una: u64) -> bool {
        self.fin.is_some_and(|fin| fin < una)
    }
}
