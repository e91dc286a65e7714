//! Traffic between each site and the Internet, at the point of presence nearest to the site.

use skyhop_path::fibre::great_circle_m;
use skyhop_path::network::Role;

use super::Pair;
use crate::plan::ground::Ground;

/// Each site as the client of the nearest point of presence, or without points of presence of the nearest gateway; as its
/// server if it `receives` what the client of a transfer sends. The error says that there is neither.
///
/// Operators assign users to the nearest point of presence, whichever gateway serves them (see
/// `skyhop_path::topology::Access`).
pub(super) fn pairs(ground: &Ground, receives: bool) -> Result<Vec<Pair>, String> {
    let with_role = |role: &Role| -> Vec<u32> {
        let all = (0..).zip(&ground.roles);
        all.filter(|(_, own)| *own == role).map(|(index, _)| index).collect()
    };
    let mut servers = with_role(&Role::PointOfPresence);
    if servers.is_empty() {
        servers = with_role(&Role::Gateway);
    }
    if servers.is_empty() {
        return Err("is \"internet\", which needs network.gateways".to_owned());
    }
    let position = |index: u32| ground.sites[index as usize].place.position;
    let nearest = |client: u32| {
        let distance_m = |server: &u32| great_circle_m(position(client), position(*server));
        let nearest = servers.iter().min_by(|a, b| distance_m(a).total_cmp(&distance_m(b)));
        nearest.map(|server| if receives { [*server, client] } else { [client, *server] })
    };
    Ok((0..ground.terminals() as u32).filter_map(nearest).collect())
}
