//! Sites of a network: lists, names of lists, and grids of cells.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use skyhop_units::Angle;

/// Sites of a network: a list, the name of one, or a grid of cells.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Sites {
    /// The most populous cities ("top-100"), the name of a list, or a CSV file.
    Named(String),
    /// Sites one by one.
    Listed(Vec<SiteKeys>),
    /// Centres of the cells of a grid.
    Grid(GridKeys),
}

/// `network.sites` as a grid: cells of equal height in rows from south to north, and in each row as many cells of equal
/// width as come closest to squares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct GridKeys {
    /// Height of the cells, above 0. Required.
    pub grid: Angle,
    /// Southern and northern limit of the cells in degrees.
    #[serde(default = "inhabited_latitudes")]
    pub latitudes: [f64; 2],
    /// Whether only cells with one of the 10000 most populous cities are sites.
    #[serde(default)]
    pub populated: bool,
}

/// Latitudes between which nearly all people live, in degrees.
const fn inhabited_latitudes() -> [f64; 2] {
    [-60.0, 60.0]
}

/// Site of a network.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SiteKeys {
    /// Site's name, city ("New York"), or "lat,lon[,alt_m]" in degrees and metres.
    Place(String),
    /// Position with a name.
    Position(PositionKeys),
}

/// Table of a site in `network.sites`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct PositionKeys {
    /// Name of the site.
    pub name: String,
    /// Geodetic latitude in degrees.
    pub lat: f64,
    /// Longitude in degrees, positive to the east.
    pub lon: f64,
    /// Height above the ellipsoid in metres.
    #[serde(default)]
    pub alt: f64,
    /// Inhabitants, for traffic of kind "gravity".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub population: Option<u64>,
    /// Handover policy of the site's terminal. Default: `network.handover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
    /// Access profile of the site's link, in the forms of `network.user_links.access`. Default: that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}

/// Implement `Deserialize` for an enum of a text and other forms; in contrast to serde's untagged enums, errors name the
/// key.
macro_rules! text_or {
    ($type:ident, $text:ident, $expecting:literal $(, $method:ident: $access:ident => $with:ident, $other:ident)+) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Forms;

                impl<'de> Visitor<'de> for Forms {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                        Ok($type::$text(text.to_owned()))
                    }

                    $(fn $method<A: $access<'de>>(self, access: A) -> Result<$type, A::Error> {
                        Deserialize::deserialize($with::new(access)).map($type::$other)
                    })+
                }

                deserializer.deserialize_any(Forms)
            }
        }
    };
}

text_or!(
    Sites, Named, "a list of sites, \"top-100\", a CSV file, or { grid = \"5 deg\" }",
    visit_seq: SeqAccess => SeqAccessDeserializer, Listed,
    visit_map: MapAccess => MapAccessDeserializer, Grid
);
text_or!(
    SiteKeys, Place, "a place such as \"London\", or { name = \"X\", lat = 1.0, lon = 2.0 }",
    visit_map: MapAccess => MapAccessDeserializer, Position
);
