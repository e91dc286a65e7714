//! What the application has to send, in bytes.

/// The data behind the segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// Bytes written so far; `u64::MAX`: without end.
    written: u64,
    finished: bool,
    /// The segment that carries the FIN, once it has left.
    fin: Option<u64>,
}

impl Stream {
    pub(crate) const fn new() -> Self {
        Self { written: 0, finished: false, fin: None }
    }

    pub(crate) fn write(&mut self, bytes: u64) {
        if !self.finished {
            self.written = self.written.saturating_add(bytes);
        }
    }

    pub(crate) fn write_without_end(&mut self) {
        if !self.finished {
            self.written = u64::MAX;
        }
    }

    /// Ends a writing without end: what has been sent, up to byte `sent`, is all so far.
    pub(crate) fn pause(&mut self, sent: u64) {
        if self.written == u64::MAX {
            self.written = sent;
        }
    }

    /// No more will be written. An endless stream ends where it has been sent to, at byte `sent`.
    pub(crate) fn finish(&mut self, sent: u64) {
        if !self.finished {
            self.pause(sent);
        }
        self.finished = true;
    }

    /// Where it ends, as far as it has been written.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether a FIN has to leave that never did.
    pub(crate) const fn fin_is_due(&self) -> bool {
        self.finished && self.fin.is_none()
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
