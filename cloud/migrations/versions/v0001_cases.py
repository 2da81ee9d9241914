"""Cases with their pictures, reasons, answers and boxes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SHA256 = sa.String(64)


def upgrade() -> None:
    op.create_table(
        "cases",
        sa.Column("id", _SHA256, nullable=False),
        sa.Column("image_path", sa.Text, nullable=False),
        sa.Column("image_bytes", sa.BigInteger, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.Column("camera", sa.Text, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("captured_at", sa.DateTime, nullable=False),
        sa.Column("received_at", sa.DateTime, nullable=False),
        sa.Column("send_probability", sa.Double, nullable=False),
        sa.Column("is_audit", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cases"),
    )
    op.create_index("ix_cases_camera_boot_id_sequence", "cases", ["camera", "boot_id", "sequence"])
    op.create_index("ix_cases_captured_at", "cases", ["captured_at"])
    op.create_index("ix_cases_received_at", "cases", ["received_at"])
    op.create_table(
        "pictures",
        sa.Column("id", _SHA256, nullable=False),
        sa.Column("case_id", _SHA256, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pictures"),
        _of_case("pictures"),
    )
    op.create_index("ix_pictures_case_id", "pictures", ["case_id"])
    op.create_table(
        "case_reasons",
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("case_id", "reason", name="pk_case_reasons"),
        _of_case("case_reasons"),
    )
    op.create_index("ix_case_reasons_reason", "case_reasons", ["reason"])
    op.create_table(
        "label_sets",
        sa.Column("id", _SHA256, nullable=False),
        sa.Column("names", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_label_sets"),
    )
    op.create_table(
        "case_answers",
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("tier", sa.Integer, nullable=False),
        sa.Column("model_name", sa.Text, nullable=False),
        sa.Column("model_version", sa.Text, nullable=False),
        sa.Column("model_sha256", _SHA256, nullable=False),
        sa.Column("label_set_id", _SHA256, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.Column("received_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("case_id", "tier", name="pk_case_answers"),
        _of_case("case_answers"),
        sa.ForeignKeyConstraint(["label_set_id"], ["label_sets.id"], name="fk_case_answers_label_set_id"),
    )
    op.create_index("ix_case_answers_model_sha256", "case_answers", ["model_sha256"])
    op.create_table(
        "case_boxes",
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("tier", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("class_id", sa.Integer, nullable=False),
        sa.Column("class_name", sa.Text, nullable=False),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("score", "x1", "y1", "x2", "y2")),
        sa.PrimaryKeyConstraint("case_id", "tier", "position", name="pk_case_boxes"),
        _of_case("case_boxes"),
    )
    op.create_index("ix_case_boxes_class_id", "case_boxes", ["class_id"])


def downgrade() -> None:
    for table in ("case_boxes", "case_answers", "label_sets", "case_reasons", "pictures", "cases"):
        op.drop_table(table)


def _of_case(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name=f"fk_{table}_case_id", ondelete="CASCADE")
