//! Pseudo-random numbers that are the same in each run.

use skyhop_cc::Report;

/// Generator of pseudo-random numbers with a fixed sequence.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// Draw a whole number below `n`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }

    /// Draw so many numbers from -1 to 1.
    pub(crate) fn numbers(&mut self, many: usize) -> Vec<f32> {
        (0..many).map(|_| self.below(20_001) as f32 / 10_000.0 - 1.0).collect()
    }
}

/// Reports of a connection, 20 ms apart, some without a sample.
pub(crate) fn reports(seed: u64) -> Vec<Report> {
    let mut draws = Draws(seed);
    let (mut lost, mut delivered) = (0, 0);
    (1..60_u64)
        .map(|step| {
            lost += draws.below(3);
            delivered += draws.below(200);
            let samples = if draws.below(8) == 0 { 0 } else { 1 + draws.below(30) };
            let rtt_us = 20_000 + draws.below(60_000);
            Report {
                at_ns: step * 20_000_000,
                began_ns: (step - 1) * 20_000_000,
                pacing_rate: u64::from(100_000 + draws.below(9_000_000)),
                rtt_sum_us: u64::from(rtt_us) * u64::from(samples),
                rtt_samples: samples,
                rtt_least_us: if samples == 0 { 0 } else { rtt_us },
                rate_sum: u64::from(samples) * u64::from(1 + draws.below(80_000)),
                rate_samples: samples,
                srtt_us: if step == 1 { 0 } else { rtt_us },
                delivered,
                lost,
                cwnd: 4 + draws.below(900),
                packets_out: draws.below(900),
                retrans_out: draws.below(9),
                mss: 1460,
                ..Report::default()
            }
        })
        .collect()
}
