//! Routes and topologies compared with slow and simple reference algorithms.

use skyhop_model::Compat;
use std::collections::BTreeSet;

use proptest::prelude::*;
use skyhop_orbit::{Constellation, EarthModel, Ephemeris, Shell};
use skyhop_path::route::{Graph, Router};
use skyhop_path::topology::grid_links;

const NODES: usize = 12;

fn links() -> impl Strategy<Value = Vec<(u32, u32, f64)>> {
    let node = 0..NODES as u32;
    // Integer weights, so that sums are exact.
    let link = (node.clone(), node, 0_u32..20).prop_map(|(a, b, w)| (a, b, f64::from(w)));
    prop::collection::vec(link, 0..30)
}

/// Lengths of all shortest routes by the Floyd-Warshall algorithm.
fn all_lengths(links: &[(u32, u32, f64)]) -> Vec<Vec<f64>> {
    let mut length = vec![vec![f64::INFINITY; NODES]; NODES];
    for (node, row) in length.iter_mut().enumerate() {
        row[node] = 0.0;
    }
    for (a, b, weight) in links {
        let (a, b) = (*a as usize, *b as usize);
        length[a][b] = length[a][b].min(*weight);
        length[b][a] = length[b][a].min(*weight);
    }
    for via in 0..NODES {
        for a in 0..NODES {
            for b in 0..NODES {
                length[a][b] = length[a][b].min(length[a][via] + length[via][b]);
            }
        }
    }
    length
}

proptest! {
    #[test]
    fn routes_are_the_shortest_there_are(first in links(), second in links()) {
        let (mut graph, mut router) = (Graph::default(), Router::default());
        let (mut route, mut components) = (Vec::new(), Vec::new());
        // The second pass reuses the buffers.
        for links in [first, second] {
            graph.rebuild(NODES, &links);
            graph.components(&mut components);
            let expected = all_lengths(&links);
            for a in 0..NODES as u32 {
                for b in 0..NODES as u32 {
                    let length = router.shortest(&graph, a, b, &mut route);
                    let shortest = expected[a as usize][b as usize];
                    prop_assert_eq!(length.unwrap_or(f64::INFINITY), shortest);
                    prop_assert_eq!(components[a as usize] == components[b as usize], length.is_some());
                    prop_assert_eq!(route.is_empty(), length.is_none());
                    let steps: f64 = route.windows(2).map(|hop| {
                        let edges = graph.edges(hop[0]).iter().filter(|edge| edge.to == hop[1]);
                        edges.map(|edge| edge.weight).fold(f64::INFINITY, f64::min)
                    }).sum();
                    prop_assert!(length.is_none() || steps == shortest);
                }
            }
        }
    }
}

fn constellation(name: &str) -> Constellation {
    let text = match name {
        "leoem-starlink" => include_str!("../../../../data/constellations/leoem-starlink.toml"),
        _ => include_str!("../../../../data/constellations/starlink-shell1.toml"),
    };
    Constellation::parse(text, name).unwrap()
}

#[test]
fn a_full_grid_gives_every_satellite_four_neighbours() {
    for name in ["leoem-starlink", "starlink-shell1"] {
        let links = grid_links(&constellation(name).shells[0], 0, Compat::None, true);
        let distinct: BTreeSet<_> = links.iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
        assert_eq!((links.len(), distinct.len()), (2 * 1584, 2 * 1584));
        let mut neighbours = vec![0; 1584];
        for (a, b) in links {
            neighbours[a as usize] += 1;
            neighbours[b as usize] += 1;
        }
        assert!(neighbours.iter().all(|count| *count == 4));
    }
}

#[test]
fn links_between_planes_are_short_across_the_seam_as_elsewhere() {
    for (name, longest_km) in [("leoem-starlink", 1_900.0), ("starlink-shell1", 700.0)] {
        let constellation = constellation(name);
        let mut positions = Vec::new();
        Ephemeris::new(&constellation, EarthModel::Wgs84)
            .earth_fixed(constellation.epoch, &mut positions);
        let slots = constellation.shells[0].satellites_per_plane;
        for (a, b) in grid_links(&constellation.shells[0], 0, Compat::None, true) {
            let km = positions[a as usize].distance(positions[b as usize]) / 1e3;
            assert!(a / slots == b / slots || km < longest_km, "{name}: {a} to {b} is {km} km");
        }
    }
}

#[test]
fn leoems_grid_has_no_seam_and_keeps_slots() {
    let links = grid_links(&constellation("leoem-starlink").shells[0], 0, Compat::Leoem, true);
    assert_eq!(links.len(), 1584 + 23 * 66);
    assert!(
        links.iter().all(|(a, b)| a / 66 == b / 66 || (a / 66 + 1 == b / 66 && a % 66 == b % 66))
    );
}

#[test]
fn small_shells_have_each_link_once() {
    let shell = |planes, satellites_per_plane| Shell {
        planes,
        satellites_per_plane,
        phasing: 0,
        ..constellation("starlink-shell1").shells[0]
    };
    assert_eq!(grid_links(&shell(1, 1), 0, Compat::None, true), []);
    assert_eq!(grid_links(&shell(1, 2), 0, Compat::None, true), [(0, 1)]);
    assert_eq!(grid_links(&shell(2, 1), 5, Compat::None, true), [(5, 6)]);
    assert_eq!(grid_links(&shell(1, 3), 0, Compat::None, true), [(0, 1), (1, 2), (2, 0)]);
    assert_eq!(grid_links(&shell(3, 1), 0, Compat::None, true), [(0, 1), (1, 2), (2, 0)]);
}
