//! Random networks that lose, delay and duplicate packets, seeded.

use proptest::prelude::*;
use skyhop_units::Duration;

use crate::path::Fate;

/// Probabilities of misbehaviour of the network, in parts per million.
#[derive(Debug, Clone, Copy)]
pub struct Trouble {
    pub loss: u64,
    pub late: u64,
    pub twice: u64,
    pub seed: u64,
}

impl Trouble {
    /// Network that only loses packets.
    pub fn of_loss(loss: u64, seed: u64) -> Self {
        Self { loss, late: 0, twice: 0, seed }
    }

    /// Strategy for networks up to one that loses almost every third packet.
    pub fn strategy() -> impl Strategy<Value = Self> {
        (0_u64..300_000, 0_u64..200_000, 0_u64..100_000, any::<u64>())
            .prop_map(|(loss, late, twice, seed)| Self { loss, late, twice, seed })
    }

    /// Next random number of SplitMix64.
    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Random time shorter than `most`.
    pub fn time_within(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.draw() % most.as_nanos())
    }

    /// Random fate of the next packet.
    pub fn fate(&mut self) -> Fate {
        let draw = self.draw() % 1_000_000;
        if draw < self.loss {
            Fate::Lost
        } else if draw < self.loss + self.late {
            Fate::Late(Duration::from_micros(self.draw() % 150_000))
        } else if draw < self.loss + self.late + self.twice {
            Fate::Twice
        } else {
            Fate::Arrives
        }
    }
}
