//! Traffic of a network: its clients and servers, drawn or read.

mod gravity;
mod internet;
mod matrix;
mod pairing;
mod permutation;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use skyhop_app::App;
use skyhop_experiment::seed_for;

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::plan::ground::Ground;
use crate::types::{TrafficKind, TrafficSection};

/// Client and server of a flow, as indices of sites.
pub(crate) type Pair = [u32; 2];

impl NamedScenario {
    /// Clients and servers of `[network.traffic]`, in the order of their flows.
    ///
    /// # Errors
    /// A population is unknown, an odd number of sites makes no pairs, or a file is wrong.
    pub(crate) fn traffic_pairs(
        &self,
        traffic: &TrafficSection,
        ground: &Ground,
    ) -> Result<Vec<Pair>, ScenarioError> {
        // Gateways and points of presence take no part in draws.
        let sites = &ground.sites[..ground.terminals()];
        // Draws are by name, so that they do not depend on the order of the sites.
        let mut by_name: Vec<u32> = (0..sites.len() as u32).collect();
        by_name.sort_by_key(|index| &sites[*index as usize].place.name);
        let mut draws = Draws::new(self.scenario.run.seed);
        let wrong = |key: &str, what| self.key_error(key, what);
        match &traffic.kind {
            TrafficKind::Permutation => Ok(permutation::pairs(&by_name, &mut draws)),
            TrafficKind::Pairing => pairing::pairs(&by_name, &mut draws)
                .map_err(|what| wrong("network.traffic.kind", what)),
            TrafficKind::Gravity(keys) => gravity::pairs(keys.flows, &by_name, sites, &mut draws)
                .map_err(|what| wrong("network.sites", what)),
            TrafficKind::Matrix(keys) => self.matrix_pairs(&keys.file, &ground.sites),
            TrafficKind::Internet(keys) => {
                let receives = matches!(traffic.tcp.app, App::Bulk(_)) && !keys.upload;
                internet::pairs(ground, receives)
                    .map_err(|what| wrong("network.traffic.kind", what))
            }
        }
    }
}

/// Random numbers of a network's traffic.
struct Draws(ChaCha8Rng);

impl Draws {
    fn new(run_seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed_for(run_seed, "network traffic")))
    }

    /// Draw a whole number below `end`, which is above 0; all are equally likely.
    fn below(&mut self, end: u128) -> u128 {
        // Numbers beyond the last whole multiple of `end` are drawn again.
        let usable = u128::MAX - u128::MAX % end;
        loop {
            let drawn = u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64());
            if drawn < usable {
                return drawn % end;
            }
        }
    }

    /// Shuffle; all orders are equally likely.
    fn shuffle(&mut self, values: &mut [u32]) {
        for last in (1..values.len()).rev() {
            let other = self.below(last as u128 + 1) as usize;
            values.swap(last, other);
        }
    }
}
