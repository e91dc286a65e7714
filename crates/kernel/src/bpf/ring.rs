//! BPF ring buffer of a module, read as parsed records.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::error::{Context, KernelError};

const ACTION: &str = "cannot read what a module reports";

/// Reader of a ring buffer. A ring buffer may have one reader at a time.
pub(super) struct Ring<T> {
    ring: RingBuffer<'static>,
    read: Arc<Mutex<Vec<T>>>,
}

impl<T: 'static> Ring<T> {
    /// Open a ring buffer. Records for which `parse` returns `None`, such as those of another
    /// version, are skipped.
    pub(super) fn new(
        map: &MapHandle,
        parse: impl Fn(&[u8]) -> Option<T> + 'static,
    ) -> Result<Self, KernelError> {
        let read = Arc::new(Mutex::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        let sink = Arc::clone(&read);
        let callback = move |bytes: &[u8]| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).extend(parse(bytes));
            0
        };
        builder.add(map, callback).context(ACTION)?;
        let ring = builder.build().context(ACTION)?;
        Ok(Self { ring, read })
    }

    /// Return the records written since the last call, in order.
    pub(super) fn read(&self) -> Result<Vec<T>, KernelError> {
        self.ring.consume().context(ACTION)?;
        Ok(self.drain())
    }

    /// Return the records written since the last call; if there are none, wait up to `timeout` for the first.
    pub(super) fn wait(&self, timeout: Duration) -> Result<Vec<T>, KernelError> {
        match self.ring.poll(timeout) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            polled => polled.context(ACTION)?,
        }
        Ok(self.drain())
    }

    fn drain(&self) -> Vec<T> {
        std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}
