//! Random permutation without a fixed point.

use super::{Draws, Pair};

/// Clients in the given order, each with its server. Permutations are drawn until one has no fixed point, 2.7 times on
/// average; so all of those are equally likely.
pub(super) fn pairs(sites: &[u32], draws: &mut Draws) -> Vec<Pair> {
    let mut servers = sites.to_vec();
    loop {
        draws.shuffle(&mut servers);
        if sites.iter().zip(&servers).all(|(client, server)| client != server) {
            return sites.iter().zip(servers).map(|(client, server)| [*client, server]).collect();
        }
    }
}
