//! Random pairing of sites, as Hypatia's experiments with many cities have it.

use super::{Draws, Pair};

/// Both directions of each pair. The error says what is wrong.
pub(super) fn pairs(sites: &[u32], draws: &mut Draws) -> Result<Vec<Pair>, String> {
    if !sites.len().is_multiple_of(2) {
        return Err(format!(
            "is \"pairing\", which needs an even number of sites, and there are {}; expected \"permutation\", or \
             another site",
            sites.len()
        ));
    }
    let mut order = sites.to_vec();
    draws.shuffle(&mut order);
    let (pairs, _) = order.as_chunks::<2>();
    Ok(pairs.iter().flat_map(|&[a, b]| [[a, b], [b, a]]).collect())
}
