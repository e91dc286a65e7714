//! CPU per GB of our congestion controls in the kernel against the kernel's own, over a veth pair.
//!
//! Transfers come in interleaved pairs, so that whatever else the machine does meets both; the ratio is
//! the geometric mean over the pairs, with a 95 % confidence interval. Needs root and `ip`.

use std::io;

use skyhop_cc::Module;
use skyhop_kernel::hold;

mod pair;

/// Ours, and which of the kernel's own it stands beside: the same, or the one that paces, too.
const COMPARED: [(&str, &str); 8] = [
    ("cubic", "cubic"),
    ("bbr", "bbr"),
    ("bbr2", "bbr"),
    ("bbr3", "bbr"),
    ("leocc", "bbr"),
    ("copa", "bbr"),
    ("vivace", "bbr"),
    ("vivudt", "bbr"),
];

fn main() -> io::Result<()> {
    if !pair::open("cpu_per_gb")? {
        return Ok(());
    }
    for (name, kernels) in COMPARED {
        let module = Module::find(name).map_err(io::Error::other)?;
        match hold(module, &[]) {
            Ok(held) => pair::compare(&format!("skyhop:{name}"), kernels, held.kernel_name())?,
            Err(error) => println!("cpu_per_gb: skipped: {error}"),
        }
    }
    Ok(())
}
