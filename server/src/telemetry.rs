//! Traces for OpenTelemetry: the feature `otel`, and the field's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on). Spans hold
//! ids, names and counts, and nothing of what was said.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::{Level, Subscriber};
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

use crate::SPANS;

/// Where traces go. Dropping it sends what is not sent yet.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

impl Drop for Exporting {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// What gives the spans of this process to a collector; `None`: no collector is named. Call it before there is a runtime: the
/// exporter's thread has one of its own.
///
/// # Errors
/// The collector's address cannot be used, as a sentence.
pub fn layer<S>() -> Result<Option<(impl Layer<S>, Exporting)>, String>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let named = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !named("OTEL_EXPORTER_OTLP_ENDPOINT") && !named("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        return Ok(None);
    }
    // An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = SpanExporter::builder().with_http().build().map_err(|error| format!("traces cannot be sent: {error}"))?;
    let mut resource = Resource::builder();
    if !named("OTEL_SERVICE_NAME") {
        resource = resource.with_service_name("turnfast");
    }
    let provider = SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("turnfast"));
    let spans = Targets::new().with_target(SPANS, Level::DEBUG);
    Ok(Some((layer.with_filter(spans), Exporting(provider))))
}
