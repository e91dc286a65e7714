//! Form of the delays in a file of all pairs.

use skyhop_units::Duration;

/// Encoder of delays as second differences, the form in which a file of all pairs holds them.
///
/// Satellites move steadily, so that second differences are small integers while a route stays the same. The values
/// before the first step count as zero: `cumsum(cumsum(encoded)) = delays`.
#[derive(Debug, Clone, Default)]
pub struct DelayEncoder {
    last_ns: Vec<i64>,
    last_change_ns: Vec<i64>,
}

impl DelayEncoder {
    /// Encode the delays of a step as second differences, in ns.
    pub fn encode(&mut self, delays: &[Duration]) -> Vec<i64> {
        self.last_ns.resize(delays.len(), 0);
        self.last_change_ns.resize(delays.len(), 0);
        let state = self.last_ns.iter_mut().zip(&mut self.last_change_ns);
        delays
            .iter()
            .zip(state)
            .map(|(delay, (last_ns, last_change_ns))| {
                let delay_ns = delay.as_nanos() as i64;
                let change_ns = delay_ns - std::mem::replace(last_ns, delay_ns);
                change_ns - std::mem::replace(last_change_ns, change_ns)
            })
            .collect()
    }
}
