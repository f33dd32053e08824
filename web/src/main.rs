//! The page's entry. The browser runs it once the wasm module is there; natively there is nothing to run.

fn main() {
    #[cfg(target_arch = "wasm32")]
    turnfast_web::ui::start();
}
