"""Export of posteriors to TF Serving, and of their networks to ONNX."""

from .export import Export, export
from .fitted import serve
from .onnx import export_onnx
from .served import SIGNATURES, ServedModel

__all__ = ["SIGNATURES", "Export", "ServedModel", "export", "export_onnx", "serve"]
