//! Rate at which an application reads received data.

use skyhop_units::{Bytes, Duration, Instant, Rate};

/// Interval between reads of a slow reader.
const INTERVAL: Duration = Duration::from_millis(10);

/// Reader that takes bytes out of the receive buffer, at a limited rate or on arrival.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    rate: Option<Rate>,
    /// Time of the next read.
    next: Instant,
}

impl Reader {
    /// Create a reader that reads at `rate`, once every 10 ms; with `None` it reads all data on arrival.
    pub fn new(rate: Option<Rate>) -> Self {
        Self { rate, next: Instant::START }
    }

    /// Whether all data is read on arrival.
    pub fn is_fast(&self) -> bool {
        self.rate.is_none()
    }

    /// Return how many of the `unread` bytes are read now. Unused capacity is not saved: a reader that had
    /// no data to read does not read faster later.
    pub fn take(&mut self, now: Instant, unread: Bytes) -> Bytes {
        let Some(rate) = self.rate else { return unread };
        if now < self.next || unread == Bytes::ZERO {
            return Bytes::ZERO;
        }
        self.next = now + INTERVAL;
        unread.min(rate.bytes_in(INTERVAL).max(Bytes::new(1)))
    }

    /// Time of the next read if `unread` bytes are in the buffer; `None` if no read is due.
    pub fn next(&self, unread: Bytes) -> Option<Instant> {
        (self.rate.is_some() && unread > Bytes::ZERO).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_reads_at_its_rate_and_never_catches_up() {
        let mut reader = Reader::new(Some(Rate::from_bits_per_second(8_000_000)));
        let at = |ms: u64| Instant::START + Duration::from_millis(ms);
        assert_eq!(reader.take(at(0), Bytes::new(50_000)), Bytes::new(10_000));
        assert_eq!(reader.take(at(9), Bytes::new(40_000)), Bytes::ZERO);
        assert_eq!(reader.next(Bytes::new(40_000)), Some(at(10)));
        assert_eq!(reader.take(at(500), Bytes::new(40_000)), Bytes::new(10_000));
        assert_eq!(reader.take(at(510), Bytes::new(700)), Bytes::new(700));
        assert_eq!(reader.next(Bytes::ZERO), None);
    }
}
