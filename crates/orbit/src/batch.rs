//! Satellites from element sets, propagated together.

use std::num::NonZeroUsize;
use std::thread;

use skyhop_units::UtcInstant;

use crate::element_set::minutes_since;
use crate::near_earth::{Block, Constants, LANES};
use crate::{ElementSet, Vec3};

/// Number of satellites from which on another thread saves more time than it costs to start.
const SATELLITES_PER_THREAD: usize = 2_048;

/// Satellites from element sets: consecutive ones in blocks of [`LANES`], which are propagated at once.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    sets: Vec<ElementSet>,
    blocks: Vec<Block<LANES>>,
    threads: usize,
}

impl Batch {
    pub(crate) fn new(sets: Vec<ElementSet>) -> Self {
        let constants = |set: &ElementSet| {
            // Numbers that are none leave a satellite in deep space to the crate sgp4.
            Constants::new(set.elements()).unwrap_or(Constants::NONE)
        };
        let block = |sets: &[ElementSet]| {
            Block::of(&sets.iter().map(constants).collect::<Vec<Constants>>())
        };
        let most = sets.len() / SATELLITES_PER_THREAD;
        let available =
            if most > 1 { thread::available_parallelism().map_or(1, NonZeroUsize::get) } else { 1 };
        Self { blocks: sets.chunks(LANES).map(block).collect(), threads: available.min(most), sets }
    }

    pub(crate) fn sets(&self) -> &[ElementSet] {
        &self.sets
    }

    /// Append the inertial positions at `time`, in metres (true equator, mean equinox); `unknown` for satellites that
    /// SGP4 cannot propagate to that time. The result is the same for any number of threads.
    pub(crate) fn extend(&self, time: UtcInstant, unknown: Vec3, positions: &mut Vec<Vec3>) {
        let first = positions.len();
        positions.resize(first + self.sets.len(), unknown);
        let positions = &mut positions[first..];
        let blocks_each = self.blocks.len().div_ceil(self.threads.max(1)).max(1);
        let mut parts = self
            .blocks
            .chunks(blocks_each)
            .zip(self.sets.chunks(blocks_each * LANES))
            .zip(positions.chunks_mut(blocks_each * LANES));
        let Some(((blocks, sets), own)) = parts.next() else { return };
        if self.threads <= 1 {
            return propagate(blocks, sets, time, own);
        }
        thread::scope(|scope| {
            for ((blocks, sets), positions) in parts {
                scope.spawn(|| propagate(blocks, sets, time, positions));
            }
            propagate(blocks, sets, time, own);
        });
    }

    /// Inertial position of one satellite, equal to its position in [`Batch::extend`]; `None` if SGP4 cannot propagate
    /// it to that time.
    pub(crate) fn position(&self, index: usize, time: UtcInstant) -> Option<Vec3> {
        let set = &self.sets[index];
        let minutes = minutes_since(set.elements().epoch, time);
        let alone = self.blocks[index / LANES].lane(index % LANES);
        alone.positions(&[minutes]).lane(0).or_else(|| set.position(time))
    }
}

/// Write the positions of the satellites of some blocks.
fn propagate(
    blocks: &[Block<LANES>],
    sets: &[ElementSet],
    time: UtcInstant,
    positions: &mut [Vec3],
) {
    let parts = blocks.iter().zip(sets.chunks(LANES)).zip(positions.chunks_mut(LANES));
    for ((block, sets), positions) in parts {
        let mut minutes = [0.0; LANES];
        for (minutes, set) in minutes.iter_mut().zip(sets) {
            *minutes = minutes_since(set.elements().epoch, time);
        }
        let found = block.positions(&minutes);
        for (lane, (set, position)) in sets.iter().zip(positions).enumerate() {
            if let Some(known) = found.lane(lane).or_else(|| set.position(time)) {
                *position = known;
            }
        }
    }
}
