//! Generate crates/cc/src/bindings.rs from cc/skyhop_cc.h with bindgen; `--check` compares instead.
//!
//! It is a program of its own, so that only `make lint` and `make bindings` compile bindgen.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::{env, fs};

use bindgen::callbacks::{EnumVariantValue, ItemInfo, ParseCallbacks};
use bindgen::{Builder, Formatter, RustEdition, RustTarget};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cc/skyhop_cc.h");
const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cc/src/bindings.rs");
/// Naming rules: Rust names of the header's C types and enum variants.
#[derive(Debug)]
struct Names;

impl Names {
    fn camel_case(name: &str) -> String {
        let words = name.strip_prefix("skyhop_").unwrap_or(name).split('_');
        let capital = |word: &str| word[..1].to_uppercase() + &word[1..].to_lowercase();
        words.map(capital).collect()
    }
}

impl ParseCallbacks for Names {
    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        let is_type = item.name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        match item.name {
            "tcp_ca_event" => Some("CaEvent".to_owned()),
            "minmax" => Some("MinMax".to_owned()),
            "minmax_sample" => Some("MinMaxSample".to_owned()),
            name => is_type.then(|| Self::camel_case(name)),
        }
    }

    fn enum_variant_name(
        &self,
        _: Option<&str>,
        name: &str,
        _: EnumVariantValue,
    ) -> Option<String> {
        name.strip_prefix("CA_EVENT_").map(Self::camel_case)
    }
}

/// Generate the bindings: the structs up to `skyhop_module` with their fields' types, the enums and the constants.
fn generated() -> Result<String, String> {
    let builder = Builder::default()
        .header(HEADER)
        // Fields are documented by plain comments.
        .clang_args(["-fparse-all-comments", "-std=gnu11"])
        .allowlist_type("tcp_sock|ack_sample|rate_sample|tcp_ca_.*|tcp_ack_flags|sk_pacing")
        .allowlist_type(
            "skyhop_(handover.*|phase.*|signal_key|told|registration|announcement|decided|host|module)",
        )
        .allowlist_var("TCP_.*|SKYHOP_.*")
        .rustified_enum("tcp_ca_event")
        .prepend_enum_name(false)
        .raw_line("//! Generated from cc/skyhop_cc.h: see crates/bindings.")
        .raw_line(
            "#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all)]",
        )
        .derive_default(true)
        .derive_eq(true)
        .no_default("tcp_sock|skyhop_(host|param|module|registration)")
        .no_partialeq("tcp_congestion_ops|skyhop_host")
        .parse_callbacks(Box::new(Names))
        .rust_target(RustTarget::stable(85, 0).map_err(|error| error.to_string())?)
        .rust_edition(RustEdition::Edition2024)
        .formatter(Formatter::Prettyplease);
    // bindgen panics if it finds no libclang.
    let made = catch_unwind(AssertUnwindSafe(|| builder.generate()))
        .map_err(|_| "there is no libclang: install clang".to_owned())?;
    made.map(|bindings| bindings.to_string()).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match written_or_compared(env::args().any(|word| word == "--check")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bindings: {why}");
            ExitCode::FAILURE
        }
    }
}

fn written_or_compared(is_check: bool) -> Result<(), String> {
    let fresh = generated()?;
    if !is_check {
        return fs::write(COMMITTED, fresh).map_err(|error| format!("{COMMITTED}: {error}"));
    }
    let committed =
        fs::read_to_string(COMMITTED).map_err(|error| format!("{COMMITTED}: {error}"))?;
    if fresh != committed {
        return Err(
            "crates/cc/src/bindings.rs is not what cc/skyhop_cc.h says: run 'make bindings'".into(),
        );
    }
    Ok(())
}
